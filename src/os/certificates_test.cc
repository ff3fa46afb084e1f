#include "os/certificates.h"

#include <gtest/gtest.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>

#include <memory>

#include "os/etcd_for_test.h"
#include "os/files.h"
#include "os/secret.h"

namespace rubato::os {
namespace {

std::string content(const std::string& path) { return RealFiles().read(path).value_or("(missing)"); }

mode_t mode_of(const std::string& path) {
  struct stat facts {};
  return ::stat(path.c_str(), &facts) == 0 ? facts.st_mode & 0777 : 0;
}

std::shared_ptr<X509> certificate_in(const std::string& path) {
  const std::string text = content(path);
  BIO* bio = BIO_new_mem_buf(text.data(), static_cast<int>(text.size()));
  std::shared_ptr<X509> certificate(PEM_read_bio_X509(bio, nullptr, nullptr, nullptr), X509_free);
  BIO_free(bio);
  return certificate;
}

bool verifies(const std::string& ca, const std::string& certificate, int purpose) {
  const std::shared_ptr<X509_STORE> store(X509_STORE_new(), X509_STORE_free);
  X509_STORE_add_cert(store.get(), certificate_in(ca).get());
  const std::shared_ptr<X509> leaf = certificate_in(certificate);
  const std::shared_ptr<X509_STORE_CTX> check(X509_STORE_CTX_new(), X509_STORE_CTX_free);
  X509_STORE_CTX_init(check.get(), store.get(), leaf.get(), nullptr);
  X509_STORE_CTX_set_purpose(check.get(), purpose);
  return X509_verify_cert(check.get()) == 1;
}

int days_left(const std::string& path) {
  int days = 0, seconds = 0;
  ASN1_TIME_diff(&days, &seconds, nullptr, X509_get0_notAfter(certificate_in(path).get()));
  return days;
}

struct Cluster {
  FolderForTest folder;
  std::string at(const std::string& name) const { return folder.path + "/" + name; }
  void issue(const std::string& who, const std::vector<std::string>& names) {
    issue_certificate(folder.path, who, names, at("leaf.pem"), at("leaf.key"));
  }
};

TEST(Certificates, TheCaSignsForServersAndClients) {
  Cluster cluster, other;
  make_cluster_ca(cluster.folder.path);
  make_cluster_ca(other.folder.path);
  cluster.issue("node/n-1", {"127.0.0.1", "::1", "head.example"});
  EXPECT_TRUE(verifies(cluster.at("ca.pem"), cluster.at("leaf.pem"), X509_PURPOSE_SSL_SERVER));
  EXPECT_TRUE(verifies(cluster.at("ca.pem"), cluster.at("leaf.pem"), X509_PURPOSE_SSL_CLIENT));
  EXPECT_FALSE(verifies(other.at("ca.pem"), cluster.at("leaf.pem"), X509_PURPOSE_SSL_CLIENT));
  const std::shared_ptr<X509> leaf = certificate_in(cluster.at("leaf.pem"));
  EXPECT_EQ(X509_check_ip_asc(leaf.get(), "127.0.0.1", 0), 1);
  EXPECT_EQ(X509_check_ip_asc(leaf.get(), "::1", 0), 1);
  EXPECT_EQ(X509_check_ip_asc(leaf.get(), "127.0.0.2", 0), 0);
  EXPECT_EQ(X509_check_host(leaf.get(), "head.example", 0, 0, nullptr), 1);
  char name[80];
  X509_NAME_get_text_by_NID(X509_get_subject_name(leaf.get()), NID_commonName, name, sizeof name);
  EXPECT_STREQ(name, "node/n-1");
}

TEST(Certificates, LastTenYearsAndTwo) {
  Cluster cluster;
  make_cluster_ca(cluster.folder.path);
  cluster.issue("head", {});
  EXPECT_NEAR(days_left(cluster.at("ca.pem")), 3650, 1);
  EXPECT_NEAR(days_left(cluster.at("leaf.pem")), 730, 1);
}

TEST(Certificates, KeysAreForTheirOwnerOnly) {
  Cluster cluster;
  make_cluster_ca(cluster.folder.path);
  cluster.issue("head", {});
  make_token(cluster.at("token"));
  for (const char* name : {"ca.key", "leaf.key", "token"}) EXPECT_EQ(mode_of(cluster.at(name)), 0600u) << name;
  ::chmod(cluster.at("ca.key").c_str(), 0644);
  EXPECT_THROW(cluster.issue("head", {}), Error);
}

TEST(Certificates, NothingThatIsThereIsOverwritten) {
  Cluster cluster;
  make_cluster_ca(cluster.folder.path);
  make_token(cluster.at("token"));
  const std::string ca = content(cluster.at("ca.pem")), key = content(cluster.at("ca.key"));
  const std::string token = content(cluster.at("token"));
  make_cluster_ca(cluster.folder.path);
  make_token(cluster.at("token"));
  EXPECT_EQ(content(cluster.at("ca.pem")), ca);
  EXPECT_EQ(content(cluster.at("ca.key")), key);
  EXPECT_EQ(content(cluster.at("token")), token);
}

TEST(Certificates, GoOnAfterACrashBetweenTheKeyAndTheCertificate) {
  Cluster cluster;
  make_cluster_ca(cluster.folder.path);
  const std::string key = content(cluster.at("ca.key"));
  RealFiles().remove_tree(cluster.at("ca.pem"));
  make_cluster_ca(cluster.folder.path);
  EXPECT_EQ(content(cluster.at("ca.key")), key);
  cluster.issue("head", {});
  EXPECT_TRUE(verifies(cluster.at("ca.pem"), cluster.at("leaf.pem"), X509_PURPOSE_SSL_SERVER));
}

TEST(Certificates, ACaWithoutItsKeyIsNotReplaced) {
  Cluster cluster;
  make_cluster_ca(cluster.folder.path);
  RealFiles().remove_tree(cluster.at("ca.key"));
  const std::string ca = content(cluster.at("ca.pem"));
  try {
    make_cluster_ca(cluster.folder.path);
    FAIL() << "a new key for an old certificate";
  } catch (const Error& error) {
    EXPECT_EQ(error.code, ErrorCode::kConflict);
  }
  EXPECT_EQ(content(cluster.at("ca.pem")), ca);
}

TEST(Certificates, IssuedAgainTheyKeepTheirKey) {
  Cluster cluster;
  make_cluster_ca(cluster.folder.path);
  cluster.issue("head", {"10.0.0.1"});
  const std::string key = content(cluster.at("leaf.key"));
  cluster.issue("head", {"10.0.0.2"});
  EXPECT_EQ(content(cluster.at("leaf.key")), key);
  EXPECT_EQ(X509_check_ip_asc(certificate_in(cluster.at("leaf.pem")).get(), "10.0.0.2", 0), 1);
}

TEST(Certificates, RefuseNamesThatWouldSmuggleOthers) {
  Cluster cluster;
  make_cluster_ca(cluster.folder.path);
  for (const std::string name : {"a,DNS:b", "", "a b", "*", ".a", "a\nb", "300.1.1.1/8"}) {
    EXPECT_THROW(cluster.issue("head", {name}), Error) << name;
  }
  EXPECT_THROW(cluster.issue("", {}), Error);
  EXPECT_THROW(cluster.issue(std::string(65, 'x'), {}), Error);
  EXPECT_NO_THROW(cluster.issue(std::string(64, 'x'), {"300.1.1.1"}));
}

TEST(Certificates, LeaveNoDraftBehind) {
  Cluster cluster;
  make_cluster_ca(cluster.folder.path);
  cluster.issue("head", {});
  make_token(cluster.at("token"));
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(cluster.folder.path)) files += entry.is_regular_file();
  EXPECT_EQ(files, 5u);  // ca.pem ca.key leaf.pem leaf.key token
}

TEST(Token, IsLongRandomAndReadAsASecret) {
  Cluster cluster;
  make_token(cluster.at("a"));
  make_token(cluster.at("b"));
  EXPECT_EQ(read_secret(cluster.at("a")).size(), 64u);
  EXPECT_NE(read_secret(cluster.at("a")), read_secret(cluster.at("b")));
}

}  // namespace
}  // namespace rubato::os
