"""Commands that say what is there and whether it works: doctor, selftest, info."""
