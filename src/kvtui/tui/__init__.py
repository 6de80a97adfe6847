"""The full-screen app: one frozen report in, everything on screen made from it."""
