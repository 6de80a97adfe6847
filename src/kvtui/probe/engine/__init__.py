"""Ask an SGLang that lies in any Python, container or host what it makes of a launch."""
