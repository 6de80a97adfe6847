"""Which KV pool class a launch gets, and its buffers byte for byte."""
