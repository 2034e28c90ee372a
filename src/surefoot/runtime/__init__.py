"""The runtime: claims runs, drives their steps, asks the world after doubt. It writes through one handle only."""
