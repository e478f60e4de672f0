"""Run train.py and report every change of files below a folder.

python tests/support/watch_writes.py FOLDER REPORT ARGUMENTS...: REPORT gets
a line for each file or folder that Python opens for writing, makes, renames or
removes. If END_AT is "NUMBER STEP", the process gets that signal when it has
taken that step.
"""

import os
import runpy
import sys

CHANGES = {
    *("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.truncate"),
    "shutil.rmtree",
}


def watch(folder, report):
    descriptor = os.open(report, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(event, arguments):
        if event == "open":
            if not arguments[2] & (os.O_WRONLY | os.O_RDWR):
                return
        elif event not in CHANGES:
            return
        paths = arguments[:2] if event == "os.rename" else arguments[:1]
        for path in map(str, paths):
            if os.path.abspath(path).startswith(folder):
                os.write(descriptor, f"{event} {path}\n".encode())

    sys.addaudithook(note)


def end_at(number, step):
    from keras_transformer.training import loop

    made = loop.Progress

    def noticed(*place, **more):
        if place[:1] == (step,):
            os.kill(os.getpid(), number)
        return made(*place, **more)

    loop.Progress = noticed


if __name__ == "__main__":
    watch(*sys.argv[1:3])
    if when := os.environ.get("END_AT"):
        end_at(*map(int, when.split()))
    sys.argv = ["train.py", *sys.argv[3:]]
    sys.path.insert(0, os.getcwd())
    runpy.run_path("train.py", run_name="__main__")
