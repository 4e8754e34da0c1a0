"""The scripts of `benchmarks/` that measure or record, each on a CPU."""
