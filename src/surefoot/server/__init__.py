"""The HTTP service: the API, live events and the web page of one store. `surefoot serve` runs it."""
