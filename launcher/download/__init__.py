"""The model, its draft head and the harmony vocabulary on disk: what is there, and how it gets there.

`cache`, `credentials`, `snapshot` and `harmony.find` only read files and are instant: `doctor` and the start of a
deployment use them. The rest imports huggingface-hub, and only `launcher download` needs it.
"""
