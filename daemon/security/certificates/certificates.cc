#include "daemon/security/certificates/certificates.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <memory>
#include <optional>

#include <arpa/inet.h>
#include <openssl/bio.h>
#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/param_build.h>
#include <openssl/params.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include "daemon/base/one_line.h"

namespace rueda::security {
namespace {

template <class T, void (*free)(T*)>
struct Free {
  void operator()(T* object) const { free(object); }
};
template <class T, void (*free)(T*)>
using Owned = std::unique_ptr<T, Free<T, free>>;

void free_bio(BIO* bio) { ::BIO_free_all(bio); }
void free_names(GENERAL_NAMES* names) { ::GENERAL_NAMES_free(names); }

using Bio = Owned<BIO, free_bio>;
using Key = Owned<EVP_PKEY, ::EVP_PKEY_free>;
using Certificate = Owned<X509, ::X509_free>;
using List = Owned<X509_CRL, ::X509_CRL_free>;
using Number = Owned<BIGNUM, ::BN_free>;
using SecretNumber = Owned<BIGNUM, ::BN_clear_free>;
using Group = Owned<EC_GROUP, ::EC_GROUP_free>;
using Point = Owned<EC_POINT, ::EC_POINT_free>;
using Kdf = Owned<EVP_KDF, ::EVP_KDF_free>;
using KdfContext = Owned<EVP_KDF_CTX, ::EVP_KDF_CTX_free>;
using KeyContext = Owned<EVP_PKEY_CTX, ::EVP_PKEY_CTX_free>;
using Builder = Owned<OSSL_PARAM_BLD, ::OSSL_PARAM_BLD_free>;
using Parameters = Owned<OSSL_PARAM, ::OSSL_PARAM_free>;
using Integer = Owned<ASN1_INTEGER, ::ASN1_INTEGER_free>;
using Time = Owned<ASN1_TIME, ::ASN1_TIME_free>;
using Extension = Owned<X509_EXTENSION, ::X509_EXTENSION_free>;
using Names = Owned<GENERAL_NAMES, free_names>;
using Store = Owned<X509_STORE, ::X509_STORE_free>;
using Context = Owned<X509_STORE_CTX, ::X509_STORE_CTX_free>;

constexpr int kSerialBytes = 16;
constexpr std::string_view kScheme = "spiffe://";
// A certificate is valid a little before it is made: the clocks of other machines may be behind.
constexpr auto kBefore = std::chrono::minutes(5);
// How long a list of revoked certificates says that it is good for; it is read whatever it says.
constexpr std::chrono::days kListLife{3650};
// The times of an authority that follows from a secret. The second one says that there is no end
// (RFC 5280, section 4.1.2.5).
constexpr WallTime kLongAgo = std::chrono::sys_days(std::chrono::January / 1 / 2000);
constexpr WallTime kNoEnd = std::chrono::sys_days(std::chrono::December / 31 / 9999) +
                            std::chrono::hours(24) - std::chrono::seconds(1);
// The bytes of which a scalar is made; more than the order has, so that all are as likely (FIPS
// 186-5, section A.2.1).
constexpr size_t kScalarBytes = 48;
constexpr size_t kPointBytes = 65;  // Of P-256, uncompressed.

Status bad(const std::string& what) { return {Code::kInvalidArgument, what}; }

// Returns an error with what OpenSSL says.
Status failed(const std::string& what) {
  const unsigned long error = ::ERR_peek_last_error();
  ::ERR_clear_error();
  const char* const why = error == 0 ? nullptr : ::ERR_reason_error_string(error);
  return {Code::kInternal, "cannot " + what + (why == nullptr ? "" : std::string(": ") + why)};
}

Bio reader(std::string_view text) {
  return Bio(::BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

template <class Write>
Result<std::string> written(const char* what, const Write& write) {
  const Bio bio(::BIO_new(::BIO_s_mem()));
  if (!bio || write(bio.get()) != 1) return failed(what);
  char* bytes = nullptr;
  const long size = ::BIO_get_mem_data(bio.get(), &bytes);
  return std::string(bytes, static_cast<size_t>(size));
}

// Returns whether a text has been read to its end, and not to something that is damaged.
bool is_at_end() {
  const unsigned long error = ::ERR_peek_last_error();
  ::ERR_clear_error();
  return ERR_GET_LIB(error) == ERR_LIB_PEM && ERR_GET_REASON(error) == PEM_R_NO_START_LINE;
}

// Returns all certificates of a text; none of a text with a damaged one.
std::vector<Certificate> read_all(std::string_view pem) {
  std::vector<Certificate> all;
  const Bio bio = reader(pem);
  while (X509* one = ::PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)) {
    all.emplace_back(one);
  }
  if (!is_at_end()) all.clear();
  return all;
}

// Returns all lists of revoked certificates of a text; none of a text with a damaged one.
std::vector<List> read_lists(std::string_view pem) {
  std::vector<List> all;
  const Bio bio = reader(pem);
  while (X509_CRL* one = ::PEM_read_bio_X509_CRL(bio.get(), nullptr, nullptr, nullptr)) {
    all.emplace_back(one);
  }
  if (!is_at_end()) all.clear();
  return all;
}

Result<Certificate> read_first(std::string_view pem) {
  Certificate first(::PEM_read_bio_X509(reader(pem).get(), nullptr, nullptr, nullptr));
  if (first) return first;
  ::ERR_clear_error();
  return bad("there is no certificate in it (PEM)");
}

// A key with a password would have gRPC or a terminal asked for it.
int no_password(char*, int, int, void*) { return -1; }

Result<Key> read_key(std::string_view pem) {
  Key key(::PEM_read_bio_PrivateKey(reader(pem).get(), nullptr, &no_password, nullptr));
  if (key) return key;
  ::ERR_clear_error();
  return bad("there is no private key without a password in it (PEM)");
}

Result<Key> make_key() {
  Key key(::EVP_EC_gen("P-256"));
  if (!key) return failed("make a key");
  return key;
}

// Writes HKDF-SHA256 (RFC 5869) of a secret, without salt, to `out`.
bool hkdf(const std::string& secret, const std::string& info,
          std::array<unsigned char, kScalarBytes>& out) {
  const Kdf kdf(::EVP_KDF_fetch(nullptr, "HKDF", nullptr));
  const KdfContext context(kdf ? ::EVP_KDF_CTX_new(kdf.get()) : nullptr);
  if (!context) return false;
  char digest[] = "SHA256";
  std::array<unsigned char, 32> no_salt{};  // RFC 5869, section 2.2.
  const auto octets = [](const char* name, const void* data, size_t bytes) {
    return ::OSSL_PARAM_construct_octet_string(name, const_cast<void*>(data), bytes);
  };
  const std::array<OSSL_PARAM, 5> parameters = {
      ::OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest, 0),
      octets(OSSL_KDF_PARAM_KEY, secret.data(), secret.size()),
      octets(OSSL_KDF_PARAM_SALT, no_salt.data(), no_salt.size()),
      octets(OSSL_KDF_PARAM_INFO, info.data(), info.size()), ::OSSL_PARAM_construct_end()};
  return ::EVP_KDF_derive(context.get(), out.data(), out.size(), parameters.data()) == 1;
}

// Returns the private scalar that follows from a secret: 1 + N mod (n - 1), where N are the bytes
// of HKDF, and n is the order of the group. It is null if OpenSSL has no memory.
SecretNumber derive_scalar(const EC_GROUP& group, const std::string& secret,
                           const std::string& info) {
  std::array<unsigned char, kScalarBytes> bytes{};
  const bool is_derived = hkdf(secret, info, bytes);
  SecretNumber scalar(::BN_bin2bn(bytes.data(), bytes.size(), nullptr));
  ::OPENSSL_cleanse(bytes.data(), bytes.size());
  const Number most(::BN_dup(::EC_GROUP_get0_order(&group)));
  const Owned<BN_CTX, ::BN_CTX_free> context(::BN_CTX_secure_new());
  const bool is_made = is_derived && scalar && most && context &&
                       ::BN_sub_word(most.get(), 1) == 1 &&
                       ::BN_mod(scalar.get(), scalar.get(), most.get(), context.get()) == 1 &&
                       ::BN_add_word(scalar.get(), 1) == 1;
  if (!is_made) return nullptr;
  ::BN_set_flags(scalar.get(), BN_FLG_CONSTTIME);
  return scalar;
}

// Returns the key pair that follows from a secret.
Result<Key> derive_key(const std::string& secret, const std::string& info) {
  const Group group(::EC_GROUP_new_by_curve_name(NID_X9_62_prime256v1));
  const SecretNumber scalar = group ? derive_scalar(*group, secret, info) : nullptr;
  const Point point(group ? ::EC_POINT_new(group.get()) : nullptr);
  std::array<unsigned char, kPointBytes> shown{};
  const bool is_derived =
      scalar && point &&
      ::EC_POINT_mul(group.get(), point.get(), scalar.get(), nullptr, nullptr, nullptr) == 1 &&
      ::EC_POINT_point2oct(group.get(), point.get(), POINT_CONVERSION_UNCOMPRESSED, shown.data(),
                           shown.size(), nullptr) == shown.size();
  if (!is_derived) return failed("derive a key");
  const Builder builder(::OSSL_PARAM_BLD_new());
  const bool is_built =
      builder &&
      ::OSSL_PARAM_BLD_push_utf8_string(builder.get(), OSSL_PKEY_PARAM_GROUP_NAME, "prime256v1",
                                        0) == 1 &&
      ::OSSL_PARAM_BLD_push_BN(builder.get(), OSSL_PKEY_PARAM_PRIV_KEY, scalar.get()) == 1 &&
      ::OSSL_PARAM_BLD_push_octet_string(builder.get(), OSSL_PKEY_PARAM_PUB_KEY, shown.data(),
                                         shown.size()) == 1;
  const Parameters parameters(is_built ? ::OSSL_PARAM_BLD_to_param(builder.get()) : nullptr);
  const KeyContext context(::EVP_PKEY_CTX_new_from_name(nullptr, "EC", nullptr));
  EVP_PKEY* made = nullptr;
  const bool is_made =
      parameters && context && ::EVP_PKEY_fromdata_init(context.get()) == 1 &&
      ::EVP_PKEY_fromdata(context.get(), &made, EVP_PKEY_KEYPAIR, parameters.get()) == 1;
  Key key(made);
  if (!is_made) return failed("derive a key");
  return key;
}

Result<std::string> pem_of(const X509& certificate) {
  return written("write a certificate",
                 [&](BIO* bio) { return ::PEM_write_bio_X509(bio, &certificate); });
}

Result<std::string> pem_of(const EVP_PKEY& key) {
  return written("write a key", [&](BIO* bio) {
    return ::PEM_write_bio_PKCS8PrivateKey(bio, &key, nullptr, nullptr, 0, nullptr, nullptr);
  });
}

// The clock's own functions count in nanoseconds, and cannot go beyond the year 2262.
time_t to_time_t(WallTime time) { return static_cast<time_t>(time.time_since_epoch().count()); }

WallTime time_of(const ASN1_TIME* time) {
  tm parts{};
  if (::ASN1_TIME_to_tm(time, &parts) != 1) return {};
  return WallTime(std::chrono::seconds(::timegm(&parts)));
}

std::string serial_of(const ASN1_INTEGER* serial) {
  const Number number(::ASN1_INTEGER_to_BN(serial, nullptr));
  char* const digits = number ? ::BN_bn2hex(number.get()) : nullptr;
  std::string text = digits == nullptr ? "" : digits;
  ::OPENSSL_free(digits);
  text.erase(0, std::min(text.find_first_not_of('0'), text.size()));
  return text;
}

bool set_random_serial(X509& certificate) {
  std::array<unsigned char, kSerialBytes> bytes{};
  if (::RAND_bytes(bytes.data(), kSerialBytes) != 1) return false;
  bytes[0] = static_cast<unsigned char>((bytes[0] & 0x7f) | 0x40);  // Positive, and never short.
  const Number number(::BN_bin2bn(bytes.data(), kSerialBytes, nullptr));
  return number && ::BN_to_ASN1_INTEGER(number.get(), ::X509_get_serialNumber(&certificate));
}

bool set_name(X509_NAME* name, const std::string& common) {
  // Nobody reads it but people; it has 64 characters at most (RFC 5280, appendix A.1).
  const std::string text = common.substr(0, 64);
  return ::X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_UTF8,
                                      reinterpret_cast<const unsigned char*>(text.data()),
                                      static_cast<int>(text.size()), -1, 0) == 1;
}

bool add(X509& certificate, X509& issuer, int nid, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  ::X509V3_set_ctx(&context, &issuer, &certificate, nullptr, nullptr, 0);
  const Extension extension(::X509V3_EXT_conf_nid(nullptr, &context, nid, value.c_str()));
  return extension && ::X509_add_ext(&certificate, extension.get(), -1) == 1;
}

bool set_times(X509& certificate, WallTime from, WallTime to) {
  return ::ASN1_TIME_set(::X509_getm_notBefore(&certificate), to_time_t(from)) != nullptr &&
         ::ASN1_TIME_set(::X509_getm_notAfter(&certificate), to_time_t(to)) != nullptr;
}

// Returns a certificate to which extensions and the signature are still to be added, or null.
Certificate blank(EVP_PKEY& key, const std::string& name, WallTime from, WallTime to) {
  Certificate made(::X509_new());
  const bool is_made = made && ::X509_set_version(made.get(), X509_VERSION_3) == 1 &&
                       set_random_serial(*made) && set_times(*made, from, to) &&
                       ::X509_set_pubkey(made.get(), &key) == 1 &&
                       set_name(::X509_get_subject_name(made.get()), name);
  return is_made ? std::move(made) : nullptr;
}

bool is_ip(const std::string& host) {
  in6_addr address{};
  return ::inet_pton(AF_INET, host.c_str(), &address) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), &address) == 1;
}

// Names are checked, because OpenSSL's notation gives commas and colons a meaning.
bool is_host_name(const std::string& host) {
  return !host.empty() && host.size() <= 253 && std::all_of(host.begin(), host.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '-' || c == '*' || c == '_';
  });
}

Result<std::string> alternative_names(const Identity& identity,
                                      const std::vector<std::string>& hosts) {
  std::string names = "URI:" + to_uri(identity);
  for (const std::string& host : hosts) {
    if (!is_ip(host) && !is_host_name(host)) {
      return bad("\"" + one_line(host) + "\" is no host name and no IP address");
    }
    names += (is_ip(host) ? ",IP:" : ",DNS:") + host;
  }
  return names;
}

std::string text_of(const ASN1_STRING* text) {
  return {reinterpret_cast<const char*>(::ASN1_STRING_get0_data(text)),
          static_cast<size_t>(::ASN1_STRING_length(text))};
}

std::string ip_text(const ASN1_OCTET_STRING* bytes) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const int family = ::ASN1_STRING_length(bytes) == 4 ? AF_INET : AF_INET6;
  if (family == AF_INET6 && ::ASN1_STRING_length(bytes) != 16) return "?";
  const char* const shown =
      ::inet_ntop(family, ::ASN1_STRING_get0_data(bytes), text.data(), text.size());
  return shown == nullptr ? "?" : shown;
}

struct AlternativeNames {
  std::vector<std::string> uris;
  std::vector<std::string> hosts;
};

AlternativeNames names_of(const X509& certificate) {
  AlternativeNames found;
  const Names names(static_cast<GENERAL_NAMES*>(
      ::X509_get_ext_d2i(&certificate, NID_subject_alt_name, nullptr, nullptr)));
  for (int i = 0; i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* const name = sk_GENERAL_NAME_value(names.get(), i);
    if (name->type == GEN_URI) found.uris.push_back(text_of(name->d.uniformResourceIdentifier));
    if (name->type == GEN_DNS) found.hosts.push_back(one_line(text_of(name->d.dNSName)));
    if (name->type == GEN_IPADD) found.hosts.push_back(ip_text(name->d.iPAddress));
  }
  return found;
}

struct Authority {
  Certificate certificate;
  Key key;
  std::string trust_domain;
};

Result<Authority> read_authority(const KeyPair& pair) {
  Result<Certificate> certificate = read_first(pair.certificate);
  if (!certificate.is_ok())
    return bad("the authority's certificate: " + certificate.status().message());
  Result<Key> key = read_key(pair.key);
  if (!key.is_ok()) return bad("the authority's key: " + key.status().message());
  if (::X509_check_private_key(certificate.value().get(), key.value().get()) != 1) {
    ::ERR_clear_error();
    return bad("the authority's key is not that of its certificate");
  }
  Result<std::string> domain = trust_domain_of(pair.certificate);
  if (!domain.is_ok()) return domain.status();
  return Authority{std::move(certificate).value(), std::move(key).value(),
                   std::move(domain).value()};
}

Result<KeyPair> signed_pair(X509& certificate, EVP_PKEY& own_key, EVP_PKEY& signing_key) {
  if (::X509_sign(&certificate, &signing_key, ::EVP_sha256()) <= 0) return failed("sign");
  Result<std::string> text = pem_of(certificate);
  if (!text.is_ok()) return text.status();
  Result<std::string> key = pem_of(own_key);
  if (!key.is_ok()) return key.status();
  return KeyPair{std::move(text).value(), std::move(key).value()};
}

// Returns an error for a domain that no identity can have; an operator's serves to check it.
Status check_domain(const std::string& trust_domain) {
  return check(Identity{trust_domain, Role::kOperator, "x"});
}

// Returns an authority that signs itself.
Result<KeyPair> self_signed(EVP_PKEY& key, const std::string& name, const std::string& trust_domain,
                            WallTime from, WallTime to) {
  const Certificate made = blank(key, name + " of " + trust_domain, from, to);
  const bool is_made =
      made && ::X509_set_issuer_name(made.get(), ::X509_get_subject_name(made.get())) == 1 &&
      add(*made, *made, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") &&
      add(*made, *made, NID_key_usage, "critical,keyCertSign,cRLSign") &&
      add(*made, *made, NID_subject_key_identifier, "hash") &&
      add(*made, *made, NID_subject_alt_name, "URI:" + std::string(kScheme) + trust_domain);
  if (!is_made) return failed("make an authority");
  return signed_pair(*made, key, key);
}

// All that have certificates dial, and nodes are dialled, too.
Status check_purposes(X509& certificate) {
  const bool may_dial = ::X509_check_purpose(&certificate, X509_PURPOSE_SSL_CLIENT, 0) == 1;
  const bool may_serve = ::X509_check_purpose(&certificate, X509_PURPOSE_SSL_SERVER, 0) == 1;
  const AlternativeNames names = names_of(certificate);
  const bool is_node =
      names.uris.size() == 1 && names.uris.front().find("/rueda/node/") != std::string::npos;
  if (may_dial && (may_serve || !is_node)) return Status::ok();
  return bad(may_dial ? "it lacks the purpose serverAuth, which a node's certificate needs"
                      : "it lacks the purpose clientAuth");
}

}  // namespace

WallTime wall_now() {
  return std::chrono::time_point_cast<std::chrono::seconds>(std::chrono::system_clock::now());
}

Result<KeyPair> make_authority(const std::string& trust_domain, std::chrono::days life) {
  if (Status sound = check_domain(trust_domain); !sound.is_ok()) return sound;
  const Result<Key> key = make_key();
  if (!key.is_ok()) return key.status();
  std::array<unsigned char, 4> mark{};
  if (::RAND_bytes(mark.data(), mark.size()) != 1) return failed("make an authority");
  // Authorities that replace each other are told apart by their names.
  std::string name = "Rueda CA ";
  for (const unsigned char byte : mark) {
    name += "0123456789abcdef"[byte >> 4];
    name += "0123456789abcdef"[byte & 15];
  }
  return self_signed(*key.value(), name, trust_domain, wall_now() - kBefore, wall_now() + life);
}

Result<KeyPair> derive_authority(const std::string& secret, const std::string& trust_domain) {
  if (Status sound = check_domain(trust_domain); !sound.is_ok()) return sound;
  const Result<Key> key = derive_key(secret, "rueda private authority\n" + trust_domain);
  if (!key.is_ok()) return key.status();
  return self_signed(*key.value(), "Rueda private CA", trust_domain, kLongAgo, kNoEnd);
}

Result<KeyPair> issue(const KeyPair& authority, const Identity& identity,
                      const IssueOptions& options) {
  const Result<Authority> signer = read_authority(authority);
  if (!signer.is_ok()) return signer.status();
  if (Status sound = check(identity); !sound.is_ok()) return sound;
  if (identity.trust_domain != signer.value().trust_domain) {
    return bad("the authority is for " + signer.value().trust_domain + ", not for " +
               identity.trust_domain);
  }
  const Result<std::string> names = alternative_names(identity, options.hosts);
  if (!names.is_ok()) return names.status();
  const Result<Key> key = make_key();
  if (!key.is_ok()) return key.status();
  X509& issuer = *signer.value().certificate;
  const WallTime issuers_end = time_of(::X509_get0_notAfter(&issuer));
  const WallTime begin =
      options.lasts_as_authority ? time_of(::X509_get0_notBefore(&issuer)) : wall_now() - kBefore;
  const WallTime end = options.lasts_as_authority
                           ? issuers_end
                           : std::min<WallTime>(wall_now() + options.life, issuers_end);
  if (end <= wall_now() && options.life > std::chrono::days(0)) {
    return bad(
        "the authority itself has ended: make another one, and see docs/security.md on how one "
        "replaces the other");
  }
  const std::string shown = std::string(to_string(identity.role)) + ' ' + identity.name;
  const Certificate made = blank(*key.value(), shown, begin, end);
  const bool is_made = made &&
                       ::X509_set_issuer_name(made.get(), ::X509_get_subject_name(&issuer)) == 1 &&
                       add(*made, issuer, NID_basic_constraints, "critical,CA:FALSE") &&
                       add(*made, issuer, NID_key_usage, "critical,digitalSignature") &&
                       add(*made, issuer, NID_ext_key_usage,
                           identity.role == Role::kNode ? "serverAuth,clientAuth" : "clientAuth") &&
                       add(*made, issuer, NID_subject_key_identifier, "hash") &&
                       add(*made, issuer, NID_authority_key_identifier, "keyid:always") &&
                       add(*made, issuer, NID_subject_alt_name, names.value());
  if (!is_made) return failed("make a certificate");
  return signed_pair(*made, *key.value(), *signer.value().key);
}

Result<CertificateFacts> read_certificate(std::string_view pem) {
  const Result<Certificate> read = read_first(pem);
  if (!read.is_ok()) return read.status();
  const X509& certificate = *read.value();
  AlternativeNames names = names_of(certificate);
  if (names.uris.size() != 1) {
    return bad("a certificate for Rueda has one URI, its identity; this one has " +
               std::to_string(names.uris.size()));
  }
  Result<Identity> identity = parse_identity(names.uris.front());
  if (!identity.is_ok()) return identity.status();
  return CertificateFacts{std::move(identity).value(),
                          serial_of(::X509_get0_serialNumber(&certificate)),
                          time_of(::X509_get0_notBefore(&certificate)),
                          time_of(::X509_get0_notAfter(&certificate)), std::move(names.hosts)};
}

Result<std::string> trust_domain_of(std::string_view authority_pem) {
  const Result<Certificate> read = read_first(authority_pem);
  if (!read.is_ok()) return bad("the authority's certificate: " + read.status().message());
  if (::X509_check_ca(read.value().get()) == 0) {
    return bad("that is no authority's certificate: it may sign no others");
  }
  const AlternativeNames names = names_of(*read.value());
  const bool has_one = names.uris.size() == 1 && names.uris.front().starts_with(kScheme);
  if (!has_one) return bad("the authority names no trust domain (one URI, spiffe://NAME)");
  const std::string domain = names.uris.front().substr(kScheme.size());
  if (Status sound = check_domain(domain); !sound.is_ok()) return sound;
  return domain;
}

Status check_pair(const KeyPair& pair, const std::string& authorities) {
  const Result<Certificate> certificate = read_first(pair.certificate);
  if (!certificate.is_ok()) return certificate.status();
  const Result<Key> key = read_key(pair.key);
  if (!key.is_ok()) return key.status();
  if (::X509_check_private_key(certificate.value().get(), key.value().get()) != 1) {
    ::ERR_clear_error();
    return bad("the key is not that of the certificate");
  }
  const std::vector<Certificate> known = read_all(authorities);
  if (known.empty()) return bad("there is no authority's certificate (PEM), or a damaged one");
  const std::vector<Certificate> chain = read_all(pair.certificate);
  if (chain.empty()) return bad("a certificate after the first one is damaged");
  const Store store(::X509_STORE_new());
  for (const Certificate& one : known) ::X509_STORE_add_cert(store.get(), one.get());
  const std::unique_ptr<STACK_OF(X509), void (*)(STACK_OF(X509)*)> between(
      sk_X509_new_null(), [](STACK_OF(X509) * stack) { sk_X509_free(stack); });
  for (const Certificate& one : chain) sk_X509_push(between.get(), one.get());
  const Context context(::X509_STORE_CTX_new());
  if (!context || ::X509_STORE_CTX_init(context.get(), store.get(), certificate.value().get(),
                                        between.get()) != 1) {
    return failed("check a certificate");
  }
  if (::X509_verify_cert(context.get()) == 1) return check_purposes(*certificate.value());
  ::ERR_clear_error();
  return bad(std::string("the authority does not vouch for the certificate: ") +
             ::X509_verify_cert_error_string(::X509_STORE_CTX_get_error(context.get())));
}

Result<RevocationList> RevocationList::read(const std::string& pem,
                                            const std::string& authorities) {
  RevocationList revoked;
  if (pem.empty()) return revoked;
  const std::vector<List> lists = read_lists(pem);
  if (lists.empty()) return bad("there is no list of revoked certificates in it (PEM, X509 CRL)");
  const std::vector<Certificate> known = read_all(authorities);
  for (const List& list : lists) {
    const bool is_signed = std::any_of(known.begin(), known.end(), [&](const Certificate& one) {
      return ::X509_CRL_verify(list.get(), ::X509_get0_pubkey(one.get())) == 1;
    });
    ::ERR_clear_error();
    const bool is_of_known = std::any_of(known.begin(), known.end(), [&](const Certificate& one) {
      return ::X509_NAME_cmp(::X509_CRL_get_issuer(list.get()),
                             ::X509_get_subject_name(one.get())) == 0;
    });
    if (!is_signed && is_of_known) {
      return bad("an authority has not signed the list of revoked certificates in its name");
    }
    if (!is_signed) continue;
    revoked.made_ = std::max(revoked.made_, time_of(::X509_CRL_get0_lastUpdate(list.get())));
    STACK_OF(X509_REVOKED)* const entries = ::X509_CRL_get_REVOKED(list.get());
    for (int i = 0; i < sk_X509_REVOKED_num(entries); ++i) {
      const X509_REVOKED* const entry = sk_X509_REVOKED_value(entries, i);
      revoked.serials_.push_back(serial_of(::X509_REVOKED_get0_serialNumber(entry)));
    }
  }
  std::sort(revoked.serials_.begin(), revoked.serials_.end());
  return revoked;
}

bool RevocationList::has(const std::string& serial) const {
  return std::binary_search(serials_.begin(), serials_.end(), serial);
}

namespace {

// Returns a serial number as serial_of() writes it.
std::string normal_serial(std::string serial) {
  std::transform(serial.begin(), serial.end(), serial.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  serial.erase(0, std::min(serial.find_first_not_of('0'), serial.size()));
  return serial;
}

bool add_entry(X509_CRL& list, const std::string& serial) {
  BIGNUM* parsed = nullptr;
  const bool is_number = ::BN_hex2bn(&parsed, serial.c_str()) == static_cast<int>(serial.size());
  const Number number(parsed);
  if (!is_number || !number) return false;
  const Integer integer(::BN_to_ASN1_INTEGER(number.get(), nullptr));
  const Time now(::ASN1_TIME_set(nullptr, to_time_t(wall_now())));
  Owned<X509_REVOKED, ::X509_REVOKED_free> entry(::X509_REVOKED_new());
  const bool is_made = integer && now && entry &&
                       ::X509_REVOKED_set_serialNumber(entry.get(), integer.get()) == 1 &&
                       ::X509_REVOKED_set_revocationDate(entry.get(), now.get()) == 1;
  // The list owns the entry once it has taken it.
  return is_made && ::X509_CRL_add0_revoked(&list, entry.get()) == 1 && entry.release() != nullptr;
}

}  // namespace

Result<std::string> revoke(const KeyPair& authority, const std::string& pem,
                           const std::string& serial) {
  const Result<Authority> signer = read_authority(authority);
  if (!signer.is_ok()) return signer.status();
  const Result<RevocationList> before = RevocationList::read(pem, authority.certificate);
  if (!before.is_ok()) return before.status();
  if (before.value().has(normal_serial(serial))) return pem;
  const List list(pem.empty()
                      ? ::X509_CRL_new()
                      : ::PEM_read_bio_X509_CRL(reader(pem).get(), nullptr, nullptr, nullptr));
  const Time now(::ASN1_TIME_set(nullptr, to_time_t(wall_now())));
  const Time next(::ASN1_TIME_set(nullptr, to_time_t(wall_now() + kListLife)));
  const X509_NAME* const name = ::X509_get_subject_name(signer.value().certificate.get());
  const bool is_made = list && now && next &&
                       ::X509_CRL_set_version(list.get(), X509_CRL_VERSION_2) == 1 &&
                       ::X509_CRL_set_issuer_name(list.get(), name) == 1 &&
                       ::X509_CRL_set1_lastUpdate(list.get(), now.get()) == 1 &&
                       ::X509_CRL_set1_nextUpdate(list.get(), next.get()) == 1;
  if (!is_made) return failed("make a list of revoked certificates");
  if (!add_entry(*list, serial)) return bad("\"" + one_line(serial) + "\" is no serial number");
  ::X509_CRL_sort(list.get());
  if (::X509_CRL_sign(list.get(), signer.value().key.get(), ::EVP_sha256()) <= 0) {
    return failed("sign a list of revoked certificates");
  }
  return written("write a list of revoked certificates",
                 [&](BIO* bio) { return ::PEM_write_bio_X509_CRL(bio, list.get()); });
}

}  // namespace rueda::security
