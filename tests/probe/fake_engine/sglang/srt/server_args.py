"""A server_args module that does what a flag of the test asks for."""

import argparse
import dataclasses
import os
import signal
import sys
import time

if os.environ.get("FAKE_BROKEN"):
    raise RuntimeError("no kernels for this machine\nsecond line")
if os.environ.get("FAKE_SLOW_IMPORT"):
    time.sleep(60)
print("a banner on stdout while importing")


@dataclasses.dataclass
class ServerArgs:
    model_path: str = ""
    kv_cache_dtype: str = "auto"
    page_size: int | None = None
    api_key: str | None = None
    attention_backend: str | None = None
    mode: str = ""

    @staticmethod
    def add_cli_args(parser):
        parser.add_argument("--model-path", "--model", required=True, help="the model")
        parser.add_argument("--kv-cache-dtype", default="auto", choices=["auto", "fp8_e5m2"])
        parser.add_argument("--page-size", type=int)
        parser.add_argument("--api-key")
        parser.add_argument("--mode", default="")

    def resolve_once(self):
        self.attention_backend = "triton" if self.kv_cache_dtype != "auto" else "fa3"
        if self.mode == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        if self.mode == "hang":
            time.sleep(600)
        if self.mode == "refuse":
            raise ValueError("these two do not go together")
        if self.mode == "noise":
            os.write(1, b"\x1e not json\nplain noise\n\xff\xfe\n")
            print("more noise", file=sys.stdout)
        if self.mode == "env":
            self.mode = os.environ.get("SGLANG_TEST", "unset")
        if self.mode == "files":
            with open(os.path.join(self.model_path, "config.json")) as file:
                self.mode = file.read()

    def check_server_args(self):
        if self.page_size == 3:
            raise AssertionError("page size 3")


def prepare_server_args(argv):
    parser = argparse.ArgumentParser(prog="sglang serve")
    ServerArgs.add_cli_args(parser)
    return ServerArgs(**vars(parser.parse_args(argv)))
