"""The command line: one module per command, `main` finds them, `render` draws what people read. Wires up everything below it."""
