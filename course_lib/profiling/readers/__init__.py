"""Files of profilers read into layer tables, timelines and metrics."""
