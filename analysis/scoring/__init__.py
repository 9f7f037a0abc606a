"""Cross-scoring reasonings under prompts with a language model: the one corner of analysis that may import torch, lazily."""
