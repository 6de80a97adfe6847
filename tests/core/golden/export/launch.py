# deepseek-v3: SGLang 0.5.23
# Written by kvtui 1.0.0 at 2026-11-30T12:00:00Z.
# Checked: rules of SGLang 0.5.23 for 8 x H200: starts, 1 warnings
# Not checked: the pool was not built
# Not checked: kernels, graph capture and the weights themselves
import os

os.environ['SGLANG_NOTE'] = "it's $HOME\n100%"

import sglang  # reads the environment when it is imported


def start() -> sglang.Engine:
    """Start the engine; the weights are loaded here."""
    return sglang.Engine(
        model_path='/models/DeepSeek V3',
        trust_remote_code=True,
        tp_size=8,
        enable_hierarchical_cache=True,
        page_size=64,
        cuda_graph_bs_decode=[1, 2, 4],
        enable_tf32_matmul=False,
        port=31000,
        api_key=os.environ['SGLANG_API_KEY'],
        default_chat_template_kwargs={'thinking': False},
    )


if __name__ == "__main__":
    engine = start()
    print(engine.generate("The capital of France is", {"max_new_tokens": 16}))
    engine.shutdown()
