"""The pure core: protocols as generators over typed effects, decisions as plain functions. No clock, randomness or I/O."""
