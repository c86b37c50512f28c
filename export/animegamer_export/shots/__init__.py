"""The shots of the published scripts: their hand-over file `mllm-output.pt`, read, written and checked."""
