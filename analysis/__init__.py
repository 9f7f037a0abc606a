"""Offline analysis of rollout logs: readers, estimators, detectors, verdict and report. Never imports trainer or envs."""
