"""The pods' network of a test cluster: a bridge, a network namespace per pod, and the cluster's DNS.

    with Network(folder) as network:
        network.address              of the real machine on the bridge; the DNS server is there
        pod = network.attach("web-0")       .pid holds the namespaces (network, host name, IPC), .address
        pod.cut(); pod.mend(); pod.close()
        network.names = {"web.default.svc.cluster.local": ["10.200.0.10"]}

Service addresses lead nowhere, as there is no kube-proxy: the name of any service gives the addresses of its pods.
"""
import ctypes
import os
import shutil
import signal
import socket
import struct
import subprocess
import threading
from pathlib import Path

from harness import die_with_parent
from hosts import own_names

_CLONE_NEWUTS, _CLONE_NEWIPC, _CLONE_NEWNET = 0x04000000, 0x08000000, 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)
A, AAAA, NOT_FOUND = 1, 28, 3


def _ip(*commands):
    subprocess.run(["ip", "-batch", "-"], input="\n".join(commands) + "\n", text=True, check=True, capture_output=True)


class PodNetwork:
    def __init__(self, network, number, hostname):
        self._network, self.number = network, number
        self.address = f"{network.subnet}.{number}"
        self._link = f"{network.tag}{number:02x}"

        def enter():
            die_with_parent()
            if _libc.unshare(_CLONE_NEWNET | _CLONE_NEWUTS | _CLONE_NEWIPC) != 0:
                raise OSError(ctypes.get_errno(), "unshare")
            socket.sethostname(hostname[:63])

        self._holder = subprocess.Popen(["sleep", "infinity"], preexec_fn=enter, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.pid = self._holder.pid
        _ip(f"link add {self._link} type veth peer name eth0 netns {self.pid}",
            f"link set {self._link} master {network.bridge} up")
        inside = ["nsenter", f"--net=/proc/{self.pid}/ns/net", "ip", "-batch", "-"]
        subprocess.run(inside, text=True, check=True, capture_output=True, input=(
            f"link set lo up\naddr add {self.address}/24 dev eth0\nlink set eth0 up\n"
            f"route add default via {network.address}\n"))

    def inside(self):
        return ["nsenter", *(f"--{kind}=/proc/{self.pid}/ns/{kind}" for kind in ("net", "uts", "ipc"))]

    def cut(self):
        _ip(f"link set {self._link} down")

    def mend(self):
        _ip(f"link set {self._link} up")

    def close(self):
        subprocess.run(["ip", "link", "del", self._link], capture_output=True)
        self._holder.kill()
        self._holder.wait()
        self._network.release(self.number)


class Network:
    def __init__(self, folder):
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.tag, self.subnet = own_names(folder, "rk")
        self.bridge, self.address = self.tag + "br", f"{self.subnet}.1"
        self.names = {}
        self._free = list(range(10, 250))
        self._dns = None
        try:
            _ip(f"link add {self.bridge} type bridge", f"addr add {self.address}/24 dev {self.bridge}",
                f"link set {self.bridge} up")
            self._dns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            self._dns.bind((self.address, 53))
            self._thread = threading.Thread(target=self._serve, daemon=True)
            self._thread.start()
        except BaseException:
            self.close()
            raise

    def attach(self, hostname):
        # The address that was given up longest ago: nobody may take a new pod for a dead one.
        return PodNetwork(self, self._free.pop(0), hostname)

    def release(self, number):
        self._free.append(number)

    def resolv_conf(self, namespace):
        return (f"nameserver {self.address}\noptions ndots:5 timeout:2\n"
                f"search {namespace}.svc.cluster.local svc.cluster.local cluster.local\n")

    def _serve(self):
        while True:
            try:
                query, sender = self._dns.recvfrom(4096)
                if not query:
                    return
                self._dns.sendto(self._answer(query), sender)
            except (ValueError, IndexError, struct.error):
                continue
            except OSError:
                return

    def _answer(self, query):
        labels, at = [], 12
        while query[at]:
            labels.append(query[at + 1:at + 1 + query[at]].decode())
            at += 1 + query[at]
        question = query[12:at + 5]
        kind = struct.unpack(">H", query[at + 1:at + 3])[0]
        found = self.names.get(".".join(labels).lower())
        answers = found if found and kind == A else []
        records = b"".join(struct.pack(">HHHIH", 0xC00C, A, 1, 1, 4) + socket.inet_aton(one) for one in answers)
        flags = 0x8580 | (0 if found is not None else NOT_FOUND)
        return query[:2] + struct.pack(">HHHHH", flags, 1, len(answers), 0, 0) + question + records

    def close(self):
        if self._dns:
            try:
                self._dns.shutdown(socket.SHUT_RDWR)  # wakes recvfrom
            except OSError:
                pass
            self._dns.close()
            self._thread.join()
        subprocess.run(["ip", "link", "del", self.bridge], capture_output=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
