"""What the stand-in for Compute has: places, machine types, accelerators, images. A small part of Google's."""
import functools
import re

REGIONS = {"us-west1": "abc", "us-central1": "abcf", "europe-west4": "abc"}
FAMILIES = {  # family: (sizes in vCPUs, MB of memory for each)
    "n1-standard": ((1, 2, 4, 8, 16, 32, 64, 96), 3840), "n1-highmem": ((2, 4, 8, 16, 32, 64, 96), 6656),
    "n1-highcpu": ((2, 4, 8, 16, 32, 64, 96), 921.6), "n2-standard": ((2, 4, 8, 16, 32, 48, 64, 80), 4096),
    "e2-standard": ((2, 4, 8, 16, 32), 4096), "c2-standard": ((4, 8, 16, 30, 60), 4096),
}
SHARED = {"e2-micro": (2, 1024), "e2-small": (2, 2048), "e2-medium": (2, 4096), "f1-micro": (1, 614),
          "g1-small": (1, 1740)}
WITH_GPUS = {  # their accelerators come with them
    "a2-highgpu-1g": (12, 87040, "nvidia-tesla-a100", 1), "a2-highgpu-8g": (96, 696320, "nvidia-tesla-a100", 8),
    "g2-standard-4": (4, 16384, "nvidia-l4", 1), "g2-standard-96": (96, 393216, "nvidia-l4", 8),
}
ACCELERATORS = {  # name: (most in a machine, where)
    "nvidia-tesla-t4": (4, "ab"), "nvidia-tesla-k80": (8, "ab"), "nvidia-tesla-v100": (8, "ab"),
    "nvidia-tesla-p100": (4, "ab"), "nvidia-l4": (8, "ab"), "nvidia-tesla-a100": (16, "bcf"), "ct5lp": (8, "a"),
}
IMAGES = {  # (project, name): (family, GB, made, deprecated)
    ("deeplearning-platform-release", "common-cpu-v20240922"): ("common-cpu", 50, "2024-09-22", False),
    ("deeplearning-platform-release", "common-cpu-v20230807"): ("common-cpu", 50, "2023-08-07", True),
    ("deeplearning-platform-release", "common-cu121-v20240922-debian-11"): ("common-cu121", 50, "2024-09-22", False),
    ("deeplearning-platform-release", "tf-latest-gpu-v20240922"): ("tf-latest-gpu", 50, "2024-09-22", False),
    ("ml-images", "c0-deeplearning-common-cu121-v20231209-debian-11"): ("common-cu121", 50, "2023-12-09", False),
    ("ml-images", "tf-1-13-gpu-v20190401"): ("tf-1-13-gpu", 30, "2019-04-01", False),
    ("ubuntu-os-cloud", "ubuntu-2004-focal-v20250101"): ("ubuntu-2004-lts", 10, "2025-01-01", False),
    ("ubuntu-os-cloud", "ubuntu-2204-jammy-v20250101"): ("ubuntu-2204-lts", 10, "2025-01-01", False),
    ("ubuntu-os-cloud", "ubuntu-2204-jammy-arm64-v20250101"): ("ubuntu-2204-lts-arm64", 10, "2025-01-01", False),
    ("ubuntu-os-cloud", "ubuntu-2404-noble-amd64-v20250101"): ("ubuntu-2404-lts-amd64", 10, "2025-01-01", False),
    ("debian-cloud", "debian-12-bookworm-v20250101"): ("debian-12", 10, "2025-01-01", False),
}


@functools.cache
def zones():
    return [f"{region}-{letter}" for region, letters in REGIONS.items() for letter in letters]


def region_of(zone):
    return zone.rpartition("-")[0]


@functools.cache
def machine_types():
    """{name: (vCPUs, MB, accelerator or None, how many)}, without the custom ones."""
    out = {name: (*size, None, 0) for name, size in SHARED.items()} | dict(WITH_GPUS)
    for family, (sizes, memory) in FAMILIES.items():
        out |= {f"{family}-{count}": (count, int(count * memory), None, 0) for count in sizes}
    return out


def machine_type(name):
    """One by name, custom ones too; None: there is none."""
    custom = re.fullmatch(r"(?:(n2|n2d|e2|n4)-)?custom-(\d+)-(\d+)(-ext)?", name)
    if not custom:
        return machine_types().get(name)
    count, memory = int(custom[2]), int(custom[3])
    if memory % 256 or (count > 1 and count % 2):
        return None
    return count, memory, None, 0


def accelerators_in(zone):
    return {name: most for name, (most, letters) in ACCELERATORS.items() if zone[-1] in letters}
