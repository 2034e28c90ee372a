"""Tools for services that people use, each with the effect class and the lookup that its service allows."""
