"""A worker that fails in a chosen way; the other ranks wait to be stopped.

usage: fail.py RANK HOW
  HOW: record  writes its error file as PyTorch's @record does, exits with 1
       torn    leaves half an error file, exits with 1
       quiet   exits with 7 and says nothing
       signal  kills itself with SIGKILL
"""
import json
import os
import signal
import sys
import time
import traceback


def write_error_file(error, part=1.0):
    """The layout of torch.distributed.elastic.multiprocessing.errors.ErrorHandler."""
    data = {"message": {"message": f"{type(error).__name__}: {error}",
                        "extraInfo": {"py_callstack": traceback.format_exc(), "timestamp": str(int(time.time()))}}}
    text = json.dumps(data)
    with open(os.environ["TORCHELASTIC_ERROR_FILE"], "w") as out:
        out.write(text[: int(len(text) * part)])


def lose_the_weights():
    raise ValueError("the weights are gone")


def main():
    rank, how = int(sys.argv[1]), sys.argv[2]
    print(f"rank {os.environ['RANK']} is here", flush=True)
    if int(os.environ["RANK"]) != rank:
        time.sleep(600)
    if how == "quiet":
        sys.exit(7)
    if how == "signal":
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        lose_the_weights()
    except ValueError as error:
        write_error_file(error, part=0.5 if how == "torn" else 1.0)
        sys.exit(1)


main()
