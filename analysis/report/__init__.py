"""The HTML report: templates and figures over a finished analysis. Computes no statistics of its own."""
