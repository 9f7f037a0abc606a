"""Checks: one file per family, each a pure function of a run and its measures that returns findings.

from analysis.detectors import run_detectors
"""

from analysis.detectors.registry import Detector, all_detectors, detector, family, run_detectors, worst

__all__ = ["Detector", "all_detectors", "detector", "family", "run_detectors", "worst"]
