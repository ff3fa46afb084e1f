#include "clouds/gcp/machine_types.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "core/text.h"

namespace rubato::clouds {
namespace {

// A family's price is that of its processors and its memory.
struct Family {
  std::string_view name;
  double standard_gib = 0, highmem_gib = 0, highcpu_gib = 0;  // for each vCPU; 0: there is none
  double vcpu_price = 0, gib_price = 0;
};
constexpr std::array<Family, 14> kFamilies = {{
    {"c2", 4, 0, 0, 0.03398, 0.00455},
    {"c2d", 4, 8, 2, 0.029563, 0.003959},
    {"c3", 4, 8, 2, 0.03398, 0.00456},
    {"c3d", 4, 8, 2, 0.029563, 0.003959},
    {"c4", 3.75, 7.75, 2, 0.03465, 0.003938},
    {"c4a", 4, 8, 2, 0.03086, 0.003508},
    {"e2", 4, 8, 1, 0.02181159, 0.00292353},
    {"n1", 3.75, 6.5, 0.9, 0.031611, 0.004237},
    {"n2", 4, 8, 1, 0.031611, 0.004237},
    {"n2d", 4, 8, 1, 0.027502, 0.003686},
    {"n4", 4, 8, 2, 0.03126, 0.003554},
    {"t2a", 4, 0, 0, 0.0250, 0.003375},
    {"t2d", 4, 0, 0, 0.027502, 0.003686},
    {"m3", 0, 0, 0, 0.0348, 0.0051},
}};

struct Fixed {
  std::string_view name;
  GcpType type;
};
constexpr std::array<Fixed, 28> kFixed = {{
    {"a2-highgpu-1g", {12, 87040, 1, "A100", 3.673}},
    {"a2-highgpu-2g", {24, 174080, 2, "A100", 7.347}},
    {"a2-highgpu-4g", {48, 348160, 4, "A100", 14.694}},
    {"a2-highgpu-8g", {96, 696320, 8, "A100", 29.387}},
    {"a2-megagpu-16g", {96, 1392640, 16, "A100", 55.740}},
    {"a2-ultragpu-1g", {12, 174080, 1, "A100-80G", 5.069}},
    {"a2-ultragpu-2g", {24, 348160, 2, "A100-80G", 10.138}},
    {"a2-ultragpu-4g", {48, 696320, 4, "A100-80G", 20.276}},
    {"a2-ultragpu-8g", {96, 1392640, 8, "A100-80G", 40.551}},
    {"a3-highgpu-1g", {26, 239616, 1, "H100", 11.061}},
    {"a3-highgpu-2g", {52, 479232, 2, "H100", 22.122}},
    {"a3-highgpu-4g", {104, 958464, 4, "H100", 44.245}},
    {"a3-highgpu-8g", {208, 1916928, 8, "H100", 88.490}},
    {"a3-megagpu-8g", {208, 1916928, 8, "H100", 92.214}},
    {"e2-medium", {2, 4096, 0, "", 0.03351}},
    {"e2-micro", {2, 1024, 0, "", 0.00838}},
    {"e2-small", {2, 2048, 0, "", 0.01675}},
    {"f1-micro", {1, 614, 0, "", 0.0076}},
    {"g1-small", {1, 1740, 0, "", 0.0257}},
    {"g2-standard-12", {12, 49152, 1, "L4", 1.000}},
    {"g2-standard-16", {16, 65536, 1, "L4", 1.147}},
    {"g2-standard-24", {24, 98304, 2, "L4", 2.000}},
    {"g2-standard-32", {32, 131072, 1, "L4", 1.734}},
    {"g2-standard-4", {4, 16384, 1, "L4", 0.707}},
    {"g2-standard-48", {48, 196608, 4, "L4", 4.000}},
    {"g2-standard-8", {8, 32768, 1, "L4", 0.854}},
    {"g2-standard-96", {96, 393216, 8, "L4", 7.999}},
    {"m3-ultramem-32", {32, 999424, 0, "", 6.091}},
}};

constexpr std::array<GcpAccelerator, 8> kAccelerators = {{
    {"nvidia-h100-80gb", "H100", 9.80},
    {"nvidia-l4", "L4", 0.56},
    {"nvidia-tesla-a100", "A100", 2.933908},
    {"nvidia-tesla-k80", "K80", 0.45},
    {"nvidia-tesla-p100", "P100", 1.46},
    {"nvidia-tesla-p4", "P4", 0.60},
    {"nvidia-tesla-t4", "T4", 0.35},
    {"nvidia-tesla-v100", "V100", 2.48},
}};

constexpr double kMebiPerGibi = 1024;

std::optional<int> number_of(std::string_view text) {
  int out = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (text.empty() || error != std::errc() || end != text.data() + text.size() || out <= 0) return std::nullopt;
  return out;
}

const Family* find_family(std::string_view name) {
  const auto found = std::ranges::find(kFamilies, name, &Family::name);
  return found == kFamilies.end() ? nullptr : &*found;
}

GcpType sized(const Family& family, int vcpus, double gib) {
  GcpType out;
  out.vcpus = vcpus;
  out.memory_mib = static_cast<int64_t>(gib * kMebiPerGibi);
  out.price_per_hour = vcpus * family.vcpu_price + gib * family.gib_price;
  return out;
}

// "n2-custom-4-8192", "custom-4-8192" of n1; "-ext" for more memory.
std::optional<GcpType> custom_type(std::vector<std::string_view> parts) {
  if (!parts.empty() && parts.back() == "ext") parts.pop_back();
  if (!parts.empty() && parts.front() == "custom") parts.insert(parts.begin(), "n1");
  if (parts.size() != 4 || parts[1] != "custom") return std::nullopt;
  const Family* family = find_family(parts[0]);
  const auto vcpus = number_of(parts[2]), mib = number_of(parts[3]);
  if (family == nullptr || !vcpus || !mib) return std::nullopt;
  return sized(*family, *vcpus, *mib / kMebiPerGibi);
}

}  // namespace

std::optional<GcpType> find_gcp_type(std::string_view name) {
  if (const auto found = std::ranges::find(kFixed, name, &Fixed::name); found != kFixed.end()) return found->type;
  std::vector<std::string_view> parts = split(name, '-');
  if (auto custom = custom_type(parts)) return custom;
  if (parts.size() == 4 && parts[3] == "lssd") parts.pop_back();
  if (parts.size() != 3) return std::nullopt;
  const Family* family = find_family(parts[0]);
  const auto vcpus = number_of(parts[2]);
  if (family == nullptr || !vcpus) return std::nullopt;
  const double gib = parts[1] == "standard"  ? family->standard_gib
                     : parts[1] == "highmem" ? family->highmem_gib
                     : parts[1] == "highcpu" ? family->highcpu_gib
                                             : 0;
  if (gib == 0) return std::nullopt;
  return sized(*family, *vcpus, gib * *vcpus);
}

const GcpAccelerator* find_gcp_accelerator(std::string_view name) {
  const auto found = std::ranges::find(kAccelerators, name, &GcpAccelerator::name);
  return found == kAccelerators.end() ? nullptr : &*found;
}

bool is_gcp_arm(std::string_view machine_type) {
  return machine_type.starts_with("t2a-") || machine_type.starts_with("c4a-");
}

}  // namespace rubato::clouds
