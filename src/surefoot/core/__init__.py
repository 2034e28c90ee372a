"""The pure core: what happens and what it means, without clock, randomness or I/O.

Tables as data, decide, evolve, the value rule, redaction and the marker. Nothing here waits, reads or writes.
"""
