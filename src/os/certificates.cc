#include "os/certificates.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

#include "core/error.h"
#include "os/fd.h"
#include "os/files.h"

namespace rubato::os {

namespace {

template <auto free_it>
struct Free {
  template <class T>
  void operator()(T* it) const {
    free_it(it);
  }
};
using Key = std::unique_ptr<EVP_PKEY, Free<EVP_PKEY_free>>;
using Certificate = std::unique_ptr<X509, Free<X509_free>>;
using Bio = std::unique_ptr<BIO, Free<BIO_free_all>>;
using Extension = std::unique_ptr<X509_EXTENSION, Free<X509_EXTENSION_free>>;
using Names = std::unique_ptr<GENERAL_NAMES, Free<GENERAL_NAMES_free>>;
using Octets = std::unique_ptr<ASN1_OCTET_STRING, Free<ASN1_OCTET_STRING_free>>;

// Machines whose clocks are behind ours by up to so much take a fresh certificate.
constexpr long kClockSkewSeconds = 24 * 3600;
constexpr size_t kCommonNameMax = 64;  // ub-common-name of RFC 5280

// OpenSSL's own words for the last failure; they name no secret.
[[noreturn]] void crypto_failed(const std::string& doing, const std::string& where) {
  char reason[256] = "no reason given";
  if (const unsigned long code = ERR_get_error()) ERR_error_string_n(code, reason, sizeof reason);
  ERR_clear_error();
  throw Error(ErrorCode::kFailed, fmt::format("cannot {}: {}", doing, reason), where);
}
void need(bool ok, const char* doing, const std::string& where = {}) {
  if (!ok) crypto_failed(doing, where);
}

[[noreturn]] void disk_failed(const std::string& path) {
  throw Error(ErrorCode::kFailed, fmt::format("cannot write '{}': {}", path, strerror(errno)), path,
              "check the permissions and the free space of that folder");
}

enum class IfPresent { kKeep, kReplace };

void put_file(const std::string& path, std::string_view bytes, mode_t mode, IfPresent if_present) {
  std::string draft = path + ".XXXXXX";
  const Fd file(::mkostemp(draft.data(), O_CLOEXEC));  // 0600 from the first moment
  if (!file) disk_failed(path);
  struct Unlink {
    const std::string& name;
    ~Unlink() { ::unlink(name.c_str()); }
  } unlink{draft};
  while (!bytes.empty()) {
    const ssize_t n = ::write(file.get(), bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) disk_failed(path);
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  if (::fchmod(file.get(), mode) != 0 || ::fsync(file.get()) != 0) disk_failed(path);
  if (if_present == IfPresent::kReplace) {
    if (::rename(draft.c_str(), path.c_str()) != 0) disk_failed(path);
  } else if (::link(draft.c_str(), path.c_str()) != 0 && errno != EEXIST) {
    disk_failed(path);
  }
}

bool present(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

// The PEM text of something secret or not; gone from memory with it.
class PemText {
 public:
  PemText() : bio_(BIO_new(BIO_s_mem())) { need(bio_ != nullptr, "make a buffer"); }
  ~PemText() { OPENSSL_cleanse(const_cast<char*>(view().data()), view().size()); }
  BIO* bio() { return bio_.get(); }
  std::string_view view() const {
    char* data = nullptr;
    const long size = BIO_get_mem_data(bio_.get(), &data);
    return {data, static_cast<size_t>(size)};
  }

 private:
  Bio bio_;
};

Bio open_pem(const std::string& path) {
  Bio bio(BIO_new_file(path.c_str(), "r"));
  need(bio != nullptr, "read a PEM file", path);
  return bio;
}

Key load_key(const std::string& path) {
  struct stat facts {};
  if (::stat(path.c_str(), &facts) == 0 && (facts.st_mode & 077)) {
    throw Error(ErrorCode::kFailed, fmt::format("the key can be read by others (mode {:o})", facts.st_mode & 0777),
                path, "chmod 600 it, or remove it with its certificate and make both anew");
  }
  const Bio bio = open_pem(path);
  // A key that wants a pass phrase is refused: nobody is here to type it.
  pem_password_cb* const no_pass_phrase = [](char*, int, int, void*) { return -1; };
  Key key(PEM_read_bio_PrivateKey(bio.get(), nullptr, no_pass_phrase, nullptr));
  need(key != nullptr, "read the private key", path);
  return key;
}

Certificate load_certificate(const std::string& path) {
  const Bio bio = open_pem(path);
  Certificate certificate(PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr));
  need(certificate != nullptr, "read the certificate", path);
  return certificate;
}

// The key in the file, made now if there is none.
Key key_at(const std::string& path) {
  if (!present(path)) {
    const Key made(EVP_EC_gen("P-256"));
    need(made != nullptr, "make a key");
    PemText text;
    need(PEM_write_bio_PrivateKey(text.bio(), made.get(), nullptr, nullptr, 0, nullptr, nullptr) == 1, "write a key");
    put_file(path, text.view(), 0600, IfPresent::kKeep);
  }
  return load_key(path);  // not `made`: another process may have been first
}

void add_extension(X509* certificate, X509* issuer, int nid, const char* value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  const Extension extension(X509V3_EXT_conf_nid(nullptr, &context, nid, value));
  need(extension && X509_add_ext(certificate, extension.get(), -1) == 1, "add an extension");
}

bool is_dns_name(std::string_view name) {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
  return !name.empty() && name.size() <= 253 && name.find_first_not_of(kLetters) == std::string_view::npos &&
         name.front() != '.' && name.front() != '-';
}

// Built piece by piece: in OpenSSL's text form a comma in a name would add another name.
void add_names(X509* certificate, const std::vector<std::string>& names) {
  if (names.empty()) return;
  const Names all(GENERAL_NAMES_new());
  for (const std::string& name : names) {
    const bool bare = name.find('\0') == std::string::npos;
    Octets address(bare ? a2i_IPADDRESS(name.c_str()) : nullptr);
    if (!address && !is_dns_name(name)) {
      throw Error(ErrorCode::kUsage, "'" + name + "' is neither an address nor a host name", name);
    }
    GENERAL_NAME* entry = GENERAL_NAME_new();
    need(entry && sk_GENERAL_NAME_push(all.get(), entry) > 0, "add a name");
    if (address) {
      GENERAL_NAME_set0_value(entry, GEN_IPADD, address.release());
    } else {
      ASN1_IA5STRING* text = ASN1_IA5STRING_new();
      need(text && ASN1_STRING_set(text, name.data(), static_cast<int>(name.size())) == 1, "add a name");
      GENERAL_NAME_set0_value(entry, GEN_DNS, text);
    }
  }
  need(X509_add1_ext_i2d(certificate, NID_subject_alt_name, all.get(), 0, X509V3_ADD_DEFAULT) == 1, "add the names");
  ERR_clear_error();  // a2i_IPADDRESS leaves a word about each DNS name
}

// Version, number, life, subject and key; the issuer, extensions and signature are the caller's.
Certificate begin_certificate(const std::string& common_name, EVP_PKEY* key, std::chrono::seconds life) {
  Certificate certificate(X509_new());
  X509* raw = certificate.get();
  need(raw && X509_set_version(raw, X509_VERSION_3) == 1, "make a certificate");
  std::array<unsigned char, 16> number{};
  need(RAND_bytes(number.data(), number.size()) == 1, "draw random bytes");
  number[0] = static_cast<unsigned char>((number[0] & 0x7f) | 0x40);  // positive, and always 16 bytes
  const std::unique_ptr<BIGNUM, Free<BN_free>> big(BN_bin2bn(number.data(), number.size(), nullptr));
  need(big && BN_to_ASN1_INTEGER(big.get(), X509_get_serialNumber(raw)), "number a certificate");
  need(X509_gmtime_adj(X509_getm_notBefore(raw), -kClockSkewSeconds) &&
           X509_gmtime_adj(X509_getm_notAfter(raw), static_cast<long>(life.count())),
       "date a certificate");
  const auto* name = reinterpret_cast<const unsigned char*>(common_name.data());
  need(X509_NAME_add_entry_by_NID(X509_get_subject_name(raw), NID_commonName, MBSTRING_UTF8, name,
                                  static_cast<int>(common_name.size()), -1, 0) == 1,
       "name a certificate");
  need(X509_set_pubkey(raw, key) == 1, "put the key into a certificate");
  return certificate;
}

void sign_and_put(X509* certificate, EVP_PKEY* ca_key, const std::string& path, IfPresent if_present) {
  need(X509_sign(certificate, ca_key, EVP_sha256()) > 0, "sign a certificate");
  PemText text;
  need(PEM_write_bio_X509(text.bio(), certificate) == 1, "write a certificate");
  put_file(path, text.view(), 0644, if_present);
}

std::string random_hex(size_t bytes) {
  std::string raw(bytes, '\0');
  need(RAND_bytes(reinterpret_cast<unsigned char*>(raw.data()), static_cast<int>(bytes)) == 1, "draw random bytes");
  std::string text;
  for (const char byte : raw) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

}  // namespace

void make_cluster_ca(const std::string& folder) {
  const std::string certificate_path = folder + "/ca.pem", key_path = folder + "/ca.key";
  if (present(certificate_path) && !present(key_path)) {
    throw Error(ErrorCode::kConflict, "the cluster has a CA certificate but no key for it", certificate_path,
                "bring ca.key back, or remove ca.pem: then every node needs a new certificate");
  }
  const Key key = key_at(key_path);
  if (present(certificate_path)) return;
  // Its own name for each cluster, so that a foreign certificate is told by its issuer.
  const Certificate ca = begin_certificate("rubato cluster CA " + random_hex(4), key.get(), kCaLife);
  need(X509_set_issuer_name(ca.get(), X509_get_subject_name(ca.get())) == 1, "name the issuer");
  add_extension(ca.get(), ca.get(), NID_basic_constraints, "critical,CA:TRUE,pathlen:0");
  add_extension(ca.get(), ca.get(), NID_key_usage, "critical,keyCertSign,cRLSign");
  add_extension(ca.get(), ca.get(), NID_subject_key_identifier, "hash");
  sign_and_put(ca.get(), key.get(), certificate_path, IfPresent::kKeep);
}

void issue_certificate(const std::string& ca_folder, const std::string& common_name,
                       const std::vector<std::string>& names, const std::string& certificate_path,
                       const std::string& key_path, std::chrono::seconds life) {
  if (common_name.empty() || common_name.size() > kCommonNameMax) {
    throw Error(ErrorCode::kUsage, "a certificate's common name has 1 to 64 bytes", common_name);
  }
  const Certificate ca = load_certificate(ca_folder + "/ca.pem");
  const Key ca_key = load_key(ca_folder + "/ca.key");
  need(X509_check_private_key(ca.get(), ca_key.get()) == 1, "use the CA: its key is another's", ca_folder + "/ca.key");
  const Key key = key_at(key_path);
  const Certificate leaf = begin_certificate(common_name, key.get(), life);
  need(X509_set_issuer_name(leaf.get(), X509_get_subject_name(ca.get())) == 1, "name the issuer");
  add_extension(leaf.get(), ca.get(), NID_basic_constraints, "critical,CA:FALSE");
  add_extension(leaf.get(), ca.get(), NID_key_usage, "critical,digitalSignature");
  add_extension(leaf.get(), ca.get(), NID_ext_key_usage, "serverAuth,clientAuth");
  add_extension(leaf.get(), ca.get(), NID_subject_key_identifier, "hash");
  add_extension(leaf.get(), ca.get(), NID_authority_key_identifier, "keyid");
  add_names(leaf.get(), names);
  sign_and_put(leaf.get(), ca_key.get(), certificate_path, IfPresent::kReplace);
}

void make_token(const std::string& path) {
  if (present(path)) return;
  std::string token = random_hex(32) + "\n";
  put_file(path, token, 0600, IfPresent::kKeep);
  OPENSSL_cleanse(token.data(), token.size());
}

}  // namespace rubato::os
