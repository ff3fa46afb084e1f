// Certificates of one cluster: a CA of its own, what it signs for the head and the nodes, and the token of the API.
//
// All keys are EC P-256, made in this process: nothing secret is in an argument list, a log or an Error. Every file is
// written beside its place and moved there when it is whole; keys and tokens have mode 0600. Blocking: a few
// milliseconds for the keys and the disk.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace rubato::os {

constexpr std::chrono::hours kCaLife{24 * 3650};
constexpr std::chrono::hours kCertificateLife{24 * 730};

// ca.pem and ca.key in the folder. What is there stays, so that it may be called again after a crash at any point;
// of two callers at once, both end with the same CA. Throws kConflict when ca.pem is there and its key is not.
void make_cluster_ca(const std::string& folder);

// A certificate of the folder's CA for servers and clients alike. `names` are addresses and DNS names. A key that is
// there is kept and the certificate replaced, so that the two belong together whenever we are interrupted.
// Throws kUsage for a common name that is empty or over 64 bytes, and for a name that is neither address nor DNS name.
void issue_certificate(const std::string& ca_folder, const std::string& common_name,
                       const std::vector<std::string>& names, const std::string& certificate_path,
                       const std::string& key_path, std::chrono::seconds life = kCertificateLife);

// 32 random bytes in hexadecimal and a newline. A token that is there stays.
void make_token(const std::string& path);

}  // namespace rubato::os
