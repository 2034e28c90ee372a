"""How fast surefoot is, as ratios to what the disk allows and to its peers: `make bench`. README.md has the figures."""
