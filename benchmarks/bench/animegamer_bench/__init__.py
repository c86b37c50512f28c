"""`animegamer-rt bench`: seconds per turn, records, and their comparison."""
