"""The demo: a pull request, a comment, a lost reply and a killed worker, as real processes on this machine.

It stands on the outside: it starts a double of GitHub and workers, kills them, and judges by what GitHub holds.
"""
