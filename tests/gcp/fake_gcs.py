"""Cloud Storage's JSON API as far as Rubato uses it: media, multipart and resumable uploads, ranges, lists, checksums.

@google-cloud/compute does not carry its schema: the names that a request may have are written down here by hand.
"""
import base64
import gzip
import datetime
import hashlib
import itertools
import json
import os
import re
import urllib.parse

import crc32c
import schema
from cloud_files import Answer, BadRange, Files, list_names, range_of
from cloud_server import Refused

QUANTUM = 256 << 10  # pieces of a resumable upload, but for the last
CONDITIONS = {"ifGenerationMatch", "ifGenerationNotMatch", "ifMetagenerationMatch", "ifMetagenerationNotMatch"}
READ = CONDITIONS | {"generation", "alt", "projection"}
WRITE = CONDITIONS | {"uploadType", "name", "contentEncoding", "projection", "predefinedAcl", "kmsKeyName", "upload_id"}
LIST = {"prefix", "delimiter", "pageToken", "maxResults", "startOffset", "endOffset", "versions", "projection",
        "includeTrailingDelimiter", "includeFoldersAsPrefixes", "matchGlob"}
RESOURCE = {"name", "bucket", "contentType", "contentEncoding", "cacheControl", "metadata", "md5Hash", "crc32c",
            "storageClass", "contentDisposition", "contentLanguage", "customTime"}


def when(seconds):
    return datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.000Z")


def md5_of(path):
    digest = hashlib.md5()
    with open(path, "rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return base64.b64encode(digest.digest()).decode()


class Gcs:
    ROUTES = [  # method, pattern, handler, what its query may have
        ("POST", r"/storage/v1/b", "insert_bucket", {"project"}),
        ("GET", r"/storage/v1/b", "list_buckets", {"project", "prefix", "maxResults", "pageToken"}),
        ("GET", r"/storage/v1/b/([^/]+)", "get_bucket", {"projection"}),
        ("DELETE", r"/storage/v1/b/([^/]+)", "delete_bucket", set()),
        ("GET", r"/storage/v1/b/([^/]+)/o", "list_objects", LIST),
        ("GET", r"(?:/download)?/storage/v1/b/([^/]+)/o/([^/]+)", "get_object", READ),
        ("DELETE", r"/storage/v1/b/([^/]+)/o/([^/]+)", "delete_object", READ),
        ("POST", r"/storage/v1/b/([^/]+)/o/([^/]+)/compose", "compose", WRITE),
        ("POST", r"/storage/v1/b/([^/]+)/o/([^/]+)/rewriteTo/b/([^/]+)/o/([^/]+)", "rewrite",
         {"sourceGeneration", "rewriteToken", "maxBytesRewrittenPerCall"}),
        ("POST", r"(?:/resumable)?/upload/storage/v1/b/([^/]+)/o", "upload", WRITE),
        ("PUT", r"(?:/resumable)?/upload/storage/v1/b/([^/]+)/o", "upload_piece", WRITE),
        ("DELETE", r"(?:/resumable)?/upload/storage/v1/b/([^/]+)/o", "cancel_upload", WRITE),
    ]

    def __init__(self, world, folder):
        self.world, self.files = world, Files(folder)
        self.buckets = {name: {} for name in world.settings["buckets"]}
        self.base = ""
        self.uploads, self.rewrites, self.generations = {}, {}, itertools.count(1700000000000000)

    @staticmethod
    def is_mine(path):
        return re.match(r"(/download|/upload|/resumable/upload)?/storage/v1/", path) is not None

    def answer(self, caller, request):
        for method, pattern, name, known in self.ROUTES:
            found = re.fullmatch(pattern, request.raw_path)
            if method == request.method and found:
                break
        else:
            raise Refused("notFound", f"{request.method} {request.raw_path}", 404)
        query = dict(urllib.parse.parse_qsl(request.raw_query, keep_blank_values=True))
        unknown = sorted(set(query) - known - set(schema.STANDARD))
        if unknown:
            raise Refused("invalidParameter", f"Unknown query parameter {unknown[0]!r} of {name}")
        parts = [urllib.parse.unquote(each) for each in found.groups()]
        self.base = f"http://{request.headers.get('host')}"  # as the client calls us
        request.lose(name)
        self.world.record("storage", name, query | {"parts": parts, "range": request.headers.get("range")
                                                    or request.headers.get("content-range")})
        if parts and parts[0] not in self.buckets:
            raise Refused("notFound", "The specified bucket does not exist.", 404)
        return getattr(self, name)(caller, parts, query, request)

    def demand(self, caller, permission, what):
        if not self.world.iam.is_allowed(caller, permission, f"projects/{self.world.project}"):
            raise Refused("forbidden", f"{caller.email} does not have {permission} access to the Google Cloud Storage "
                          f"{what}. Permission '{permission}' denied on resource (or it may not exist).", 403)

    # ---- buckets ----

    def _bucket(self, name):
        return {"kind": "storage#bucket", "id": name, "name": name, "location": "US-WEST1", "storageClass": "STANDARD",
                "projectNumber": self.world.project_number, "metageneration": "1", "locationType": "region"}

    def insert_bucket(self, caller, parts, query, request):
        self.demand(caller, "storage.buckets.create", "bucket")
        name = json.loads(request.whole_body())["name"]
        if name in self.buckets:
            raise Refused("conflict", "Your previous request to create the named bucket succeeded and you already own "
                          "it.", 409)
        self.buckets[name] = {}
        return Answer(text=json.dumps(self._bucket(name)))

    def list_buckets(self, caller, parts, query, request):
        self.demand(caller, "storage.buckets.list", "project")
        found = [self._bucket(each) for each in self.buckets]
        return Answer(text=json.dumps({"kind": "storage#buckets", "items": found}))

    def get_bucket(self, caller, parts, query, request):
        self.demand(caller, "storage.buckets.get", "bucket")
        return Answer(text=json.dumps(self._bucket(parts[0])))

    def delete_bucket(self, caller, parts, query, request):
        self.demand(caller, "storage.buckets.delete", "bucket")
        if self.buckets[parts[0]]:
            raise Refused("conflict", "The bucket you tried to delete is not empty.", 409)
        del self.buckets[parts[0]]
        return Answer(204)

    # ---- objects ----

    def show(self, one):
        path = f"b/{one['bucket']}/o/{urllib.parse.quote(one['name'], safe='')}"
        links = {"selfLink": f"{self.base}/storage/v1/{path}", "mediaLink":
                 f"{self.base}/download/storage/v1/{path}?generation={one['generation']}&alt=media"}
        return links | {key: each for key, each in one.items() if key != "path"}

    def keep(self, bucket, name, path, given=None):
        """A whole file becomes an object, if it is what the client says it is."""
        given = given or {}
        checksum, digest = crc32c.of_file(path), md5_of(path)
        if given.get("crc32c", checksum) != checksum:
            raise Refused("invalid", f'Provided CRC32C "{given["crc32c"]}" doesn\'t match calculated CRC32C '
                          f'"{checksum}".')
        if given.get("md5Hash", digest) != digest:
            raise Refused("invalid", f'Provided MD5 hash "{given["md5Hash"]}" doesn\'t match calculated MD5 hash '
                          f'"{digest}".')
        generation, now = str(next(self.generations)), when(self.world.now())
        self.buckets[bucket][name] = one = {
            "kind": "storage#object", "id": f"{bucket}/{name}/{generation}", "name": name, "bucket": bucket,
            "generation": generation, "metageneration": "1", "size": str(os.path.getsize(path)), "crc32c": checksum,
            "md5Hash": digest, "etag": base64.b64encode(generation.encode()).decode(), "storageClass": "STANDARD",
            "contentType": given.get("contentType", "application/octet-stream"), "timeCreated": now, "updated": now,
            "path": path}
        for key in ("metadata", "contentEncoding"):
            if given.get(key):
                one[key] = given[key]
        return one

    def _object(self, bucket, name, query):
        one = self.buckets[bucket].get(name)
        if one is None or query.get("generation", one["generation"]) != one["generation"]:
            raise Refused("notFound", f"No such object: {bucket}/{name}", 404)
        self._check(query, one)
        return one

    def _check(self, query, one):
        generation = one["generation"] if one else "0"
        if query.get("ifGenerationMatch", generation) != generation or query.get("ifGenerationNotMatch") == generation:
            raise Refused("conditionNotMet", "At least one of the pre-conditions you specified did not hold.", 412)

    def _may_write(self, caller, bucket, name, query):
        if not name:
            raise Refused("required", "Required parameter: name")
        if "\n" in name or "\r" in name or len(name.encode()) > 1024 or name in (".", ".."):
            raise Refused("invalid", f"Disallowed object name {name!r}")
        self.demand(caller, "storage.objects.create", "object")
        if name in self.buckets[bucket]:
            self.demand(caller, "storage.objects.delete", "object")
        self._check(query, self.buckets[bucket].get(name))

    def list_objects(self, caller, parts, query, request):
        self.demand(caller, "storage.objects.list", "bucket")
        bucket = self.buckets[parts[0]]
        most = min(int(query.get("maxResults", 1000)), self.world.settings["page_max"], 1000)
        names = [name for name in bucket if query.get("startOffset", "") <= name
                 and (not query.get("endOffset") or name < query["endOffset"])]
        try:
            after = base64.b64decode(query.get("pageToken", "")).decode()
        except ValueError:
            raise Refused("invalid", "Invalid pageToken") from None
        found, common, last = list_names(names, query.get("prefix", ""), query.get("delimiter"), after, most)
        out = {"kind": "storage#objects"}
        if found:
            out["items"] = [self.show(bucket[name]) for name in found]
        if common:
            out["prefixes"] = common
        if last is not None:
            out["nextPageToken"] = base64.b64encode(last.encode()).decode()
        return Answer(text=json.dumps(out))

    def get_object(self, caller, parts, query, request):
        self.demand(caller, "storage.objects.get", "object")
        one = self._object(*parts, query)
        if query.get("alt") != "media":
            return Answer(text=json.dumps(self.show(one)))
        size = int(one["size"])
        headers = {"etag": one["etag"], "content-type": one["contentType"], "x-goog-generation": one["generation"],
                   "x-goog-hash": f"crc32c={one['crc32c']}" + (f",md5={one['md5Hash']}" if "md5Hash" in one else ""),
                   "x-goog-metageneration": "1", "x-goog-storage-class": "STANDARD",
                   "x-goog-stored-content-length": one["size"], "accept-ranges": "bytes"}
        if one.get("contentEncoding") == "gzip" and "gzip" not in request.headers.get("accept-encoding", ""):
            return self._unpacked(one, headers)
        start, length, status = 0, size, 200
        if request.headers.get("range"):
            try:
                start, length = range_of(request.headers["range"], size)
            except BadRange:
                raise Refused("requestedRangeNotSatisfiable", "Request range not satisfiable", 416) from None
            status, headers["content-range"] = 206, f"bytes {start}-{start + length - 1}/{size}"
        return Answer(status, headers, file=one["path"], start=start, length=length)

    def _unpacked(self, one, headers):
        """Google unpacks on the way for who takes no gzip: the whole of it, whatever range was asked for."""
        path = self.files.new()
        with gzip.open(one["path"]) as packed, open(path, "wb") as plain:
            plain.write(packed.read())
        return Answer(200, headers, file=path, start=0, length=os.path.getsize(path))

    def delete_object(self, caller, parts, query, request):
        self.demand(caller, "storage.objects.delete", "object")
        self._object(*parts, query)
        del self.buckets[parts[0]][parts[1]]
        return Answer(204)

    def compose(self, caller, parts, query, request):
        self._may_write(caller, *parts, query)
        given = json.loads(request.whole_body())
        sources = given.get("sourceObjects", [])
        if not 1 <= len(sources) <= 32:
            raise Refused("invalid", "The number of source components provided is not between 1 and 32")
        path = self.files.new()
        open(path, "wb").close()
        for each in sources:
            self.files.append(path, self._object(parts[0], each["name"], {
                key: each[key] for key in ("generation",) if key in each})["path"])
        one = self.keep(*parts, path, given.get("destination"))
        del one["md5Hash"]  # a composed object has none
        one["componentCount"] = len(sources)
        return Answer(text=json.dumps(self.show(one)))

    def rewrite(self, caller, parts, query, request):
        """A megabyte in each call, so that clients ask again."""
        self.demand(caller, "storage.objects.get", "object")
        given = {"generation": query["sourceGeneration"]} if "sourceGeneration" in query else {}
        source = self._object(*parts[:2], given)
        if parts[2] not in self.buckets:
            raise Refused("notFound", "The specified bucket does not exist.", 404)
        self._may_write(caller, *parts[2:], {})
        what = "/".join(parts)
        before, done = self.rewrites.get(query.get("rewriteToken"), (what, 0))
        if before != what or query.get("rewriteToken", None) not in {None, *self.rewrites}:
            raise Refused("invalid", "The rewrite token is of another rewrite.")
        size = int(source["size"])
        done = min(size, done + (1 << 20))
        told = {"kind": "storage#rewriteResponse", "totalBytesRewritten": str(done), "objectSize": str(size),
                "done": done == size}
        if done < size:
            told["rewriteToken"] = f"rewrite{next(self.generations)}"
            self.rewrites[told["rewriteToken"]] = (what, done)
            return Answer(text=json.dumps(told))
        path = self.files.new()
        open(path, "wb").close()
        self.files.append(path, source["path"])
        told["resource"] = self.show(self.keep(*parts[2:], path, source))
        return Answer(text=json.dumps(told))

    # ---- uploads ----

    def upload(self, caller, parts, query, request):
        kind = query.get("uploadType")
        if kind == "media":
            self._may_write(caller, parts[0], query.get("name"), query)
            given = self._with_hashes(request, {"contentType": request.headers.get("content-type",
                                                                                "application/octet-stream"),
                                                "contentEncoding": query.get("contentEncoding")})
            one = self.keep(parts[0], query["name"], self.files.keep(request), given)
            return Answer(text=json.dumps(self.show(one)))
        if kind == "multipart":
            return self._multipart(caller, parts, query, request)
        if kind == "resumable":
            return self._begin(caller, parts, query, request)
        raise Refused("invalid", f"Invalid upload type {kind!r}")

    @staticmethod
    def _with_hashes(request, given):
        """What `x-goog-hash` promises."""
        names = {"crc32c": "crc32c", "md5": "md5Hash"}
        for each in (request.headers.get("x-goog-hash") or "").split(","):
            name, _, value = each.strip().partition("=")
            if name in names:
                given[names[name]] = value
        return given

    @staticmethod
    def _resource(raw):
        given = json.loads(raw or b"{}")
        unknown = sorted(set(given) - RESOURCE)
        if unknown:
            raise schema.unknown_name(unknown[0], "resource")
        return given

    @staticmethod
    def _part(text):
        """(headers, body): lines may end without a carriage return, as gcloud's do."""
        end = b"\r\n" if text.startswith(b"\r\n") else b"\n"
        headers, _, body = text.removeprefix(end).partition(end * 2)
        return headers, body.removesuffix(end)

    def _multipart(self, caller, parts, query, request):
        """multipart/related: the object's description, then its bytes."""
        found = re.search(r"""boundary=["']?([^"';]+)""", request.headers.get("content-type", ""))
        pieces = request.whole_body().split(b"--" + (found[1].encode() if found else b"?"))
        if len(pieces) != 4:
            raise Refused("badRequest", "Malformed multipart body.")
        first, second = (self._part(each) for each in pieces[1:3])
        given = self._with_hashes(request, self._resource(first[1]))
        name = given.get("name", query.get("name"))
        self._may_write(caller, parts[0], name, query)
        path = self.files.new()
        with open(path, "wb") as file:
            file.write(second[1])
        kind = re.search(rb"(?i)content-type: *([^\r\n]+)", second[0])
        given.setdefault("contentType", kind[1].decode() if kind else "application/octet-stream")
        return Answer(text=json.dumps(self.show(self.keep(parts[0], name, path, given))))

    def _begin(self, caller, parts, query, request):
        given = self._resource(request.whole_body())
        name = given.get("name", query.get("name"))
        self._may_write(caller, parts[0], name, query)
        if request.headers.get("x-upload-content-type"):
            given.setdefault("contentType", request.headers["x-upload-content-type"])
        wanted = request.headers.get("x-upload-content-length")
        upload = f"upload-{next(self.generations)}"
        path = self.files.new()
        open(path, "wb").close()
        self.uploads[upload] = {"bucket": parts[0], "name": name, "given": given, "path": path, "query": query,
                                "size": int(wanted) if wanted else None, "done": None, "caller": caller}
        where = f"http://{request.headers.get('host')}{request.raw_path}?uploadType=resumable&upload_id={upload}"
        return Answer(headers={"location": where, "x-guploader-uploadid": upload})

    def _upload(self, parts, query):
        found = self.uploads.get(query.get("upload_id"))
        if found is None or found["bucket"] != parts[0]:
            raise Refused("notFound", "The upload session was not found.", 404)
        return found

    def upload_piece(self, caller, parts, query, request):
        """`Content-Range: bytes FIRST-LAST/SIZE`, `bytes FIRST-LAST/*`, or `bytes */SIZE` to ask how far it is."""
        one = self._upload(parts, query)
        have = os.path.getsize(one["path"]) if one["done"] is None else 0
        size = request.body_size
        given = request.headers.get("content-range") or f"bytes 0-{size - 1}/{size}"
        if streamed := re.fullmatch(r"bytes (\d+)-\*/\*", given):  # its end is the object's
            first = int(streamed[1])
            given = f"bytes {first}-{first + size - 1}/{first + size}"
        found = re.fullmatch(r"bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)", given)
        if found is None and size > 0:
            raise Refused("badRequest", "Failed to parse Content-Range header.")
        if one["done"] is not None:
            return Answer(text=json.dumps(self.show(one["done"])))
        if found is not None and found[3] != "*":
            if one["size"] not in (None, int(found[3])):
                raise Refused("invalid", "The upload's size is not the one that was announced.")
            one["size"] = int(found[3])
        if found is not None and found[1] is not None:
            have = self._append(one, have, int(found[1]), int(found[2]), request)
        if one["size"] is None or have < one["size"]:
            return Answer(308, {"range": f"bytes=0-{have - 1}"} if have else {})
        self._check(one["query"], self.buckets[one["bucket"]].get(one["name"]))
        one["done"] = self.keep(one["bucket"], one["name"], one["path"],
                                self._with_hashes(request, dict(one["given"])))
        return Answer(text=json.dumps(self.show(one["done"])))

    def _append(self, one, have, first, last, request):
        """How much there is now. What came twice is dropped; `upload_short`: only a part of it is kept."""
        if first > have:
            raise Refused("invalid", f"Invalid request.  The piece begins at {first}, and {have} bytes are here.", 503)
        data = request.whole_body()
        if len(data) != last - first + 1 and not request.body_left:
            raise Refused("badRequest", "Content-Range does not fit the body.")
        end = first + len(data)
        whole = one["size"] is not None and end >= one["size"]
        if end % QUANTUM and not whole and not request.body_left:
            raise Refused("badRequest", "The pieces of an upload must be multiples of 256 KiB.")
        if self.world.settings["upload_short"] > 0 and len(data) > QUANTUM:
            self.world.settings["upload_short"] -= 1
            end, whole = first + len(data) // 2, False
        if not whole:
            end -= end % QUANTUM
        with open(one["path"], "ab") as file:
            file.write(data[have - first:max(end - first, have - first)])
        return max(have, end)

    def cancel_upload(self, caller, parts, query, request):
        os.unlink(self._upload(parts, query)["path"])
        del self.uploads[query["upload_id"]]
        return Answer(499)
