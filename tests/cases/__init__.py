"""Failures that people reported of durable agents, each retold as a story and judged by the World's own log."""
