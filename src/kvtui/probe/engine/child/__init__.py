"""The program that travels to the engine's Python: standard library and that SGLang only."""
