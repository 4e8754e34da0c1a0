"""Layer tables: compared, timed and drawn."""
