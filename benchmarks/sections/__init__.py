"""A recording in sections: processes side by side, rows that are on disk at once, and what a call returned, raised and printed."""
