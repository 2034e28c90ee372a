"""What is measured, each as a program of its own: `python -m benchmarks.programs.NAME`.

Peers run in virtual environments in which surefoot is not installed, so what they share is the standard library only.
"""
