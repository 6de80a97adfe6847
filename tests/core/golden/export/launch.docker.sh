#!/usr/bin/env bash
# deepseek-v3: SGLang 0.5.23
# Written by kvtui 1.0.0 at 2026-11-30T12:00:00Z.
# Checked: rules of SGLang 0.5.23 for 8 x H200: starts, 1 warnings
# Not checked: the pool was not built
# Not checked: kernels, graph capture and the weights themselves
docker run --rm --init \
  --name deepseek-v3 \
  --gpus all \
  --ipc host --shm-size 32g --network host \
  --volume "${HF_HOME:-$HOME/.cache/huggingface}:/root/.cache/huggingface" \
  --volume '/models/DeepSeek V3:/models/DeepSeek V3:ro' \
  --env 'SGLANG_NOTE=it'"'"'s $HOME
100%' \
  lmsysorg/sglang:v0.5.23 \
  sglang serve \
  --model-path '/models/DeepSeek V3' \
  --trust-remote-code \
  --tp-size 8 \
  --enable-hierarchical-cache \
  --page-size 64 \
  --cuda-graph-bs-decode 1 2 4 \
  --no-enable-tf32-matmul \
  --port 31000 \
  --default-chat-template-kwargs '{"thinking": false}' \
  --api-key "${SGLANG_API_KEY:?set it in the environment}"
