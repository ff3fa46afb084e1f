"""AdaptDL's names on Rubato's training library: scripts of AdaptDL's users run as they are.

The original package is never hidden: where it is installed too, this one gives way to it, wherever the two stand on
`sys.path`. RUBATO_ADAPTDL=rubato keeps this one.
"""
import os as _os


def _give_way():
    """Puts the original in our place, if there is one. True when it did."""
    import importlib.machinery
    import importlib.util
    import sys

    own = _os.path.dirname(_os.path.dirname(_os.path.abspath(__file__)))
    folders = [folder for folder in sys.path if _os.path.abspath(folder) != own]
    path_finder = importlib.machinery.PathFinder
    # The others know packages that pip has installed "editable".
    found = (finder.find_spec("adaptdl", folders if finder is path_finder else None) for finder in sys.meta_path)
    spec = next((one for one in found if one is not None and one.loader is not None), None)
    if spec is None:
        return False
    original = importlib.util.module_from_spec(spec)
    sys.modules["adaptdl"] = original  # whoever imports `adaptdl` gets what stands here at the end
    spec.loader.exec_module(original)
    return True


def _set_defaults():
    """What AdaptDL's cluster sets and its examples ask for."""
    if _os.environ.get("RUBATO_OUTPUT"):
        _os.environ.setdefault("ADAPTDL_TENSORBOARD_LOGDIR", _os.path.join(_os.environ["RUBATO_OUTPUT"], "tensorboard"))


if _os.environ.get("RUBATO_ADAPTDL") == "rubato" or not _give_way():
    _set_defaults()
