"""Hand-written server sides, by row name. Importing this package registers them all."""
