"""S3 as far as Rubato and `aws s3` use it."""
import base64
import hashlib
import os
import urllib.parse
from email.utils import formatdate

import protocols
from cloud_files import Answer, BadRange, Files, list_names, range_of
from cloud_server import Refused

PART_MIN = 5 << 20


class Object:
    def __init__(self, path, etag, when, checksum=None, part_sizes=(), size=None):
        self.path, self.etag, self.when, self.checksum = path, etag, when, checksum
        self.part_sizes, self.size = list(part_sizes), os.path.getsize(path) if size is None else size


class S3:
    OPERATIONS = {  # (method, has a key, a query name that decides): the model's operation
        ("GET", False, "list-type"): "ListObjectsV2", ("HEAD", False, None): "HeadBucket",
        ("PUT", False, None): "CreateBucket", ("GET", False, "location"): "GetBucketLocation",
        ("GET", True, "uploadId"): "ListParts", ("GET", True, None): "GetObject", ("HEAD", True, None): "HeadObject",
        ("PUT", True, "uploadId"): "UploadPart", ("PUT", True, None): "PutObject",
        ("DELETE", True, "uploadId"): "AbortMultipartUpload", ("DELETE", True, None): "DeleteObject",
        ("POST", True, "uploads"): "CreateMultipartUpload", ("POST", True, "uploadId"): "CompleteMultipartUpload",
    }

    def __init__(self, world, folder):
        self.world, self.files = world, Files(folder)
        self.buckets = {name: {} for name in world.settings["buckets"]}
        self.uploads = {}

    def answer(self, model, request, signed_region):
        """`request` has method, raw_path, raw_query, headers, body_file, body_sha256, body_md5, body_size."""
        bucket, _, key = urllib.parse.unquote(request.raw_path).lstrip("/").partition("/")
        query = dict(urllib.parse.parse_qsl(request.raw_query, keep_blank_values=True))
        query = {name: value for name, value in query.items() if not name.startswith("X-Amz-")}
        decides = next((each for each in ("list-type", "location", "uploadId", "uploads") if each in query), None)
        name = self.OPERATIONS.get((request.method, bool(key), decides))
        if "x-amz-copy-source" in request.headers:
            name = {"PutObject": "CopyObject", "UploadPart": "UploadPartCopy"}.get(name)
        if name is None:
            raise Refused("MethodNotAllowed", f"{request.method} {request.raw_path}?{request.raw_query}", 405)
        operation = model.operation(name)
        body = {}
        if name == "CompleteMultipartUpload":
            shape = operation.input_shape.members["MultipartUpload"]
            body = {"MultipartUpload": protocols.xml_to_dict(shape, protocols.parse_xml(request.whole_body()))}
        parameters = protocols.read_rest(operation, {"Bucket": bucket, "Key": key}, query, request.headers, body)
        self.check_headers(operation, request.headers)
        request.lose(name)
        self.world.record("s3", name, {each: value for each, value in parameters.items() if each != "Body"})
        self.check_allowed(name)
        if bucket in self.world.settings["bucket_regions"]:
            self.buckets.setdefault(bucket, {})
        if name != "CreateBucket" and bucket not in self.buckets:
            raise Refused("NoSuchBucket", "The specified bucket does not exist", 404)
        self.check_region(bucket, request.method, signed_region)
        self.check_body(request)
        return operation, getattr(self, name)(bucket, key, parameters, request)

    # The permission that an operation needs, where it is not the operation's name.
    PERMISSIONS = {"HeadObject": "GetObject", "ListObjectsV2": "ListBucket", "CreateMultipartUpload": "PutObject",
                   "UploadPart": "PutObject", "CompleteMultipartUpload": "PutObject",
                   "ListParts": "ListMultipartUploadParts", "CopyObject": "PutObject", "UploadPartCopy": "PutObject"}

    def check_allowed(self, operation):
        role = self.world.roles.get(self.world.caller)
        action = f"s3:{self.PERMISSIONS.get(operation, operation)}"
        if role and action not in self.world.services["iam"].allowed(role):
            raise Refused("AccessDenied", f"{role} is not authorized to perform: {action}", 403)

    def region_of(self, bucket):
        return self.world.settings["bucket_regions"].get(bucket, self.world.settings["region"])

    def check_region(self, bucket, method, signed_region):
        """Who signs for another region than the bucket's is sent there; to a HEAD S3 may say 400 only."""
        region = self.region_of(bucket)
        if signed_region in (None, region):
            return
        headers = {"x-amz-bucket-region": region}
        if method == "HEAD":
            raise Refused("BadRequest", "", 400, headers=headers)
        raise Refused("PermanentRedirect", "The bucket you are attempting to access must be addressed using the "
                      "specified endpoint.", 301, headers=headers)

    @staticmethod
    def check_headers(operation, headers):
        """x-amz- headers that the operation's model does not know are a mistake of the client."""
        known = {member.serialization.get("name", "").lower() for member in operation.input_shape.members.values()}
        known |= {"x-amz-date", "x-amz-content-sha256", "x-amz-security-token", "x-amz-user-agent",
                  "x-amz-checksum-sha256", "x-amz-sdk-checksum-algorithm"}
        for name in headers:
            if name.lower().startswith("x-amz-") and name.lower() not in known:
                raise Refused("InvalidArgument", f"{operation.name} has no header {name}")

    @staticmethod
    def check_body(request):
        given = request.headers.get("content-md5")
        if given and base64.b64decode(given) != request.body_md5:
            raise Refused("BadDigest", "The Content-MD5 you specified did not match what we received.")
        given = request.headers.get("x-amz-checksum-sha256")
        if given and base64.b64decode(given) != bytes.fromhex(request.body_sha256):
            raise Refused("BadDigest", "The SHA256 you specified did not match the calculated checksum.")

    def _object(self, bucket, key):
        found = self.buckets[bucket].get(key)
        if found is None:
            raise Refused("NoSuchKey", "The specified key does not exist.", 404)
        return found

    # ---- buckets ----

    def CreateBucket(self, bucket, key, parameters, request):
        if bucket in self.buckets:
            raise Refused("BucketAlreadyOwnedByYou", "Your previous request to create it succeeded.", 409)
        self.buckets[bucket] = {}
        return Answer(headers={"location": f"/{bucket}"})

    def HeadBucket(self, bucket, key, parameters, request):
        return Answer(headers={"x-amz-bucket-region": self.region_of(bucket)})

    def GetBucketLocation(self, bucket, key, parameters, request):
        return Answer(text=f"<LocationConstraint>{self.region_of(bucket)}</LocationConstraint>")

    def ListObjectsV2(self, bucket, key, parameters, request):
        prefix, delimiter = parameters.get("Prefix", ""), parameters.get("Delimiter")
        most = min(parameters.get("MaxKeys", 1000), self.world.settings["page_max"])
        after = base64.b64decode(parameters.get("ContinuationToken", "")).decode()
        contents, common, last = list_names(self.buckets[bucket], prefix, delimiter, after, most)
        truncated = last is not None
        encode = urllib.parse.quote if parameters.get("EncodingType") == "url" else (lambda text, safe=None: text)
        text = f"<Name>{bucket}</Name><Prefix>{encode(prefix)}</Prefix><KeyCount>{len(contents)}</KeyCount>"
        if parameters.get("EncodingType"):
            text += "<EncodingType>url</EncodingType>"
        text += f"<MaxKeys>{most}</MaxKeys><IsTruncated>{'true' if truncated else 'false'}</IsTruncated>"
        if truncated:
            text += f"<NextContinuationToken>{base64.b64encode(last.encode()).decode()}</NextContinuationToken>"
        for name in contents:
            one = self.buckets[bucket][name]
            text += (f"<Contents><Key>{protocols.escape(encode(name, safe='/'))}</Key>"
                     f"<LastModified>{protocols.iso(one.when)}</LastModified><ETag>&quot;{one.etag}&quot;</ETag>"
                     f"<Size>{one.size}</Size><StorageClass>STANDARD</StorageClass></Contents>")
        for name in common:
            text += f"<CommonPrefixes><Prefix>{protocols.escape(encode(name, safe='/'))}</Prefix></CommonPrefixes>"
        return Answer(text=f"<ListBucketResult>{text}</ListBucketResult>")

    # ---- objects ----

    def PutObject(self, bucket, key, parameters, request):
        checksum = request.headers.get("x-amz-checksum-sha256")
        one = Object(self.files.keep(request), request.body_md5.hex(), self.world.now(), checksum)
        self.buckets[bucket][key] = one
        headers = {"etag": f'"{one.etag}"'}
        if checksum:
            headers["x-amz-checksum-sha256"] = checksum
        return Answer(headers=headers)

    def HeadObject(self, bucket, key, parameters, request):
        return self._read(bucket, key, parameters, request)

    GetObject = HeadObject

    def _read(self, bucket, key, parameters, request):
        one = self._object(bucket, key)
        wanted = parameters.get("IfMatch")
        if wanted and wanted.strip('"') != one.etag:
            raise Refused("PreconditionFailed", "At least one of the pre-conditions you specified did not hold", 412)
        headers = {"etag": f'"{one.etag}"', "last-modified": formatdate(one.when, usegmt=True),
                   "accept-ranges": "bytes", "content-type": "binary/octet-stream"}
        if one.checksum and parameters.get("ChecksumMode") == "ENABLED":
            headers["x-amz-checksum-sha256"] = one.checksum
        start, length, status = 0, one.size, 200
        if parameters.get("PartNumber"):
            sizes, number = one.part_sizes or [one.size], parameters["PartNumber"]
            if number > len(sizes):
                raise Refused("InvalidPartNumber", "The requested partnumber is not satisfiable", 416)
            start, length, status = sum(sizes[:number - 1]), sizes[number - 1], 206
            headers["x-amz-mp-parts-count"] = str(len(sizes))
        elif parameters.get("Range"):
            try:
                start, length = range_of(parameters["Range"], one.size)
            except BadRange:
                raise Refused("InvalidRange", "The requested range is not satisfiable", 416) from None
            status = 206
        if status == 206:
            headers["content-range"] = f"bytes {start}-{start + length - 1}/{one.size}"
        return Answer(status, headers, file=one.path, start=start, length=length)

    def DeleteObject(self, bucket, key, parameters, request):
        self.buckets[bucket].pop(key, None)
        return Answer(204)

    # ---- copies ----

    def _source(self, parameters):
        bucket, _, key = urllib.parse.unquote(parameters["CopySource"]).lstrip("/").partition("/")
        if bucket not in self.buckets:
            raise Refused("NoSuchBucket", "The specified bucket does not exist", 404)
        one = self._object(bucket, key)
        wanted = parameters.get("CopySourceIfMatch")
        if wanted and wanted.strip('"') != one.etag:
            raise Refused("PreconditionFailed", "At least one of the pre-conditions you specified did not hold", 412)
        return one

    def CopyObject(self, bucket, key, parameters, request):
        source = self._source(parameters)
        if source.size > self.world.settings["copy_max"]:
            raise Refused("InvalidRequest", "The specified copy source is larger than the maximum allowable size for a "
                          "copy source: 5368709120")
        path = self.files.new()
        self.files.append(path, source.path)
        one = Object(path, source.etag.partition("-")[0], self.world.now(), (source.checksum or "").partition("-")[0])
        if "-" in source.etag:  # it is whole now, and has the hashes of a whole object
            with open(path, "rb") as file:
                one.etag = hashlib.md5(file.read()).hexdigest()
            one.checksum = None
        self.buckets[bucket][key] = one
        return Answer(text=f"<CopyObjectResult><ETag>&quot;{one.etag}&quot;</ETag></CopyObjectResult>")

    def UploadPartCopy(self, bucket, key, parameters, request):
        parts, source = self._upload(bucket, key, parameters), self._source(parameters)
        start, length = range_of(parameters["CopySourceRange"], source.size)
        with open(source.path, "rb") as file:
            file.seek(start)
            piece = file.read(length)
        path = self.files.new()
        with open(path, "wb") as file:
            file.write(piece)
        checksum = base64.b64encode(hashlib.sha256(piece).digest()).decode()
        part = Object(path, hashlib.md5(piece).hexdigest(), self.world.now(), checksum)
        parts[parameters["PartNumber"]] = part
        return Answer(text=f"<CopyPartResult><ETag>&quot;{part.etag}&quot;</ETag>"
                      f"<ChecksumSHA256>{checksum}</ChecksumSHA256></CopyPartResult>")

    # ---- uploads in parts ----

    def CreateMultipartUpload(self, bucket, key, parameters, request):
        upload = f"upload{next(self.files.numbers)}"
        self.uploads[upload] = (bucket, key, {})
        return Answer(text=f"<InitiateMultipartUploadResult><Bucket>{bucket}</Bucket><Key>{protocols.escape(key)}</Key>"
                      f"<UploadId>{upload}</UploadId></InitiateMultipartUploadResult>")

    def _upload(self, bucket, key, parameters):
        found = self.uploads.get(parameters["UploadId"])
        if found is None or found[:2] != (bucket, key):
            raise Refused("NoSuchUpload", "The specified multipart upload does not exist.", 404)
        return found[2]

    def UploadPart(self, bucket, key, parameters, request):
        parts = self._upload(bucket, key, parameters)
        number = parameters["PartNumber"]
        if not 1 <= number <= 10000:
            raise Refused("InvalidArgument", "Part number must be an integer between 1 and 10000, inclusive")
        checksum = request.headers.get("x-amz-checksum-sha256")
        parts[number] = Object(self.files.keep(request), request.body_md5.hex(), self.world.now(), checksum)
        headers = {"etag": f'"{parts[number].etag}"'}
        if checksum:
            headers["x-amz-checksum-sha256"] = checksum
        return Answer(headers=headers)

    def ListParts(self, bucket, key, parameters, request):
        parts = self._upload(bucket, key, parameters)
        most, after = min(1000, self.world.settings["page_max"]), int(parameters.get("PartNumberMarker", 0))
        numbers = [each for each in sorted(parts) if each > after]
        text = f"<IsTruncated>{'true' if len(numbers) > most else 'false'}</IsTruncated>"
        if len(numbers) > most:
            text += f"<NextPartNumberMarker>{numbers[most - 1]}</NextPartNumberMarker>"
        for number in numbers[:most]:
            part = parts[number]
            checksum = f"<ChecksumSHA256>{part.checksum}</ChecksumSHA256>" if part.checksum else ""
            text += (f"<Part><PartNumber>{number}</PartNumber><ETag>&quot;{part.etag}&quot;</ETag>"
                     f"<Size>{part.size}</Size>{checksum}</Part>")
        return Answer(text=f"<ListPartsResult>{text}</ListPartsResult>")

    def CompleteMultipartUpload(self, bucket, key, parameters, request):
        parts = self._upload(bucket, key, parameters)
        given = parameters["MultipartUpload"]["Parts"]
        chosen = []
        for number, each in enumerate(given):
            part = parts.get(each["PartNumber"])
            if part is None or each["ETag"].strip('"') != part.etag:
                raise Refused("InvalidPart", "One or more of the specified parts could not be found.")
            if each.get("ChecksumSHA256", part.checksum) != part.checksum:
                raise Refused("InvalidPart", "A part's checksum is not the one that it was uploaded with.")
            if number + 1 < len(given) and part.size < PART_MIN:
                raise Refused("EntityTooSmall", "Your proposed upload is smaller than the minimum allowed size")
            chosen.append(part)
        if [each["PartNumber"] for each in given] != sorted(each["PartNumber"] for each in given):
            raise Refused("InvalidPartOrder", "The list of parts was not in ascending order.")
        path = self.files.new()
        for part in chosen:
            self.files.append(path, part.path)
            os.unlink(part.path)
        etag = hashlib.md5(b"".join(bytes.fromhex(part.etag) for part in chosen)).hexdigest() + f"-{len(chosen)}"
        checksum = None
        if all(part.checksum for part in chosen):
            joined = b"".join(base64.b64decode(part.checksum) for part in chosen)
            checksum = base64.b64encode(hashlib.sha256(joined).digest()).decode() + f"-{len(chosen)}"
        self.buckets[bucket][key] = Object(path, etag, self.world.now(), checksum, [part.size for part in chosen])
        del self.uploads[parameters["UploadId"]]
        return Answer(text=f"<CompleteMultipartUploadResult><Bucket>{bucket}</Bucket><Key>{protocols.escape(key)}</Key>"
                      f"<ETag>&quot;{etag}&quot;</ETag></CompleteMultipartUploadResult>")

    def AbortMultipartUpload(self, bucket, key, parameters, request):
        for part in self._upload(bucket, key, parameters).values():
            os.unlink(part.path)
        del self.uploads[parameters["UploadId"]]
        return Answer(204)
