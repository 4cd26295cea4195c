"""Files written whole, locked, unpacked and named: standard library alone."""
