"""The agent: tools as the model sees them, and the loop that talks to the model."""
