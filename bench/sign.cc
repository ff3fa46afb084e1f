// How many requests a core signs: RunInstances-like query requests, each with its own time and body.
#include <cstdio>
#include <ctime>
#include <string>

#include "aws/sigv4.h"
#include "core/sha256.h"

int main() {
  using namespace rubato::aws;
  const Credentials credentials{"AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "", std::nullopt};
  const SigningScope scope{"eu-west-1", "ec2"};
  const std::string body =
      "Action=DescribeInstances&Version=2016-11-15&Filter.1.Name=tag%3Arubato-cluster&Filter.1.Value.1=trainer&"
      "MaxResults=1000&NextToken=";
  Signer signer;
  constexpr int kRequests = 500'000;
  size_t bytes = 0;
  const std::clock_t begin = std::clock();  // of this process: other programs do not count
  for (int i = 0; i < kRequests; ++i) {
    SignedParts parts;
    parts.method = "POST";
    parts.payload_hash = rubato::sha256_hex(body + std::to_string(i));
    const std::string timestamp = amz_timestamp(rubato::WallTime(std::chrono::seconds(1700000000 + i % 60)));
    parts.headers = {{"content-type", "application/x-www-form-urlencoded; charset=utf-8"},
                     {"host", "ec2.eu-west-1.amazonaws.com"},
                     {"x-amz-date", timestamp}};
    bytes += signer.authorization(parts, scope, credentials, timestamp).size();
  }
  const double took_s = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  std::printf("%.0f signatures/s on one core (%d in %.2f s, %zu bytes)\n", kRequests / took_s, kRequests, took_s,
              bytes);
}
