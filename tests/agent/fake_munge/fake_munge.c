/* A libmunge whose munged is a folder: $FAKE_MUNGE_FOLDER, with the file `key`, and an empty file
 * for each credential that has been decoded. It keeps what munge promises and ruedarun needs: who
 * has another key reads nothing, who is another user than the credential is for is refused, and
 * nothing is decoded twice. It is no cipher to be used elsewhere: the payload is covered by a
 * keystream of SHA-256. */
#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

enum { SUCCESS = 0, BAD_ARG = 2, SOCKET = 6, INVALID = 14, REPLAYED = 17, UNAUTHORIZED = 18 };
enum { OPT_CIPHER = 0, OPT_UID_RESTRICTION = 9 };
enum { KEY_BYTES = 32, MAC_BYTES = 32, MOST_PAYLOAD = 1024 };

struct munge_ctx {
  int cipher;
  uid_t reader;
};

/* What a credential says in clear, before its payload and the MAC over both. */
struct head {
  unsigned char nonce[16];
  uid_t writer;
  uid_t reader;
  int bytes;
};

static int read_key(unsigned char* key) {
  const char* folder = getenv("FAKE_MUNGE_FOLDER");
  char path[512];
  snprintf(path, sizeof(path), "%s/key", folder == NULL ? "" : folder);
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return -1;
  const ssize_t got = read(fd, key, KEY_BYTES);
  close(fd);
  return got == KEY_BYTES ? 0 : -1;
}

static void cover(const unsigned char* key, const struct head* head, unsigned char* payload) {
  for (int i = 0; i < head->bytes; i += MAC_BYTES) {
    unsigned char block[MAC_BYTES];
    unsigned char seed[sizeof(head->nonce) + sizeof(i)];
    memcpy(seed, head->nonce, sizeof(head->nonce));
    memcpy(seed + sizeof(head->nonce), &i, sizeof(i));
    HMAC(EVP_sha256(), key, KEY_BYTES, seed, sizeof(seed), block, NULL);
    for (int k = 0; k < MAC_BYTES && i + k < head->bytes; ++k) payload[i + k] ^= block[k];
  }
}

struct munge_ctx* munge_ctx_create(void) {
  struct munge_ctx* ctx = calloc(1, sizeof(*ctx));
  if (ctx != NULL) ctx->reader = (uid_t)-1;
  return ctx;
}
void munge_ctx_destroy(struct munge_ctx* ctx) { free(ctx); }
const char* munge_ctx_strerror(struct munge_ctx* ctx) {
  (void)ctx;
  return NULL;
}
const char* munge_strerror(int error) {
  switch (error) {
    case SOCKET: return "Failed to access the fake munged";
    case INVALID: return "Invalid credential";
    case REPLAYED: return "Replayed credential";
    case UNAUTHORIZED: return "Unauthorized credential";
    default: return "Bad argument";
  }
}

int munge_ctx_set(struct munge_ctx* ctx, int option, ...) {
  va_list values;
  va_start(values, option);
  if (option == OPT_CIPHER) ctx->cipher = va_arg(values, int);
  if (option == OPT_UID_RESTRICTION) ctx->reader = va_arg(values, uid_t);
  va_end(values);
  return SUCCESS;
}

int munge_encode(char** credential, struct munge_ctx* ctx, const void* payload, int bytes) {
  unsigned char key[KEY_BYTES];
  unsigned char whole[sizeof(struct head) + MOST_PAYLOAD + MAC_BYTES];
  struct head head;
  if (read_key(key) != 0) return SOCKET;
  /* ruedarun must ask for a cipher, and for one reader. */
  if (bytes > MOST_PAYLOAD || ctx->cipher < 2 || ctx->reader == (uid_t)-1) return BAD_ARG;
  memset(&head, 0, sizeof(head));
  RAND_bytes(head.nonce, sizeof(head.nonce));
  head.writer = geteuid();
  head.reader = ctx->reader;
  head.bytes = bytes;
  memcpy(whole, &head, sizeof(head));
  memcpy(whole + sizeof(head), payload, (size_t)bytes);
  cover(key, &head, whole + sizeof(head));
  const size_t said = sizeof(head) + (size_t)bytes;
  HMAC(EVP_sha256(), key, KEY_BYTES, whole, said, whole + said, NULL);
  *credential = malloc(6 + 2 * (said + MAC_BYTES) + 1);
  char* at = *credential + sprintf(*credential, "MUNGE:");
  for (size_t i = 0; i < said + MAC_BYTES; ++i) at += sprintf(at, "%02x", whole[i]);
  return SUCCESS;
}

/* Returns whether the credential comes for the first time. */
static int is_new(const struct head* head) {
  char path[512];
  int at = snprintf(path, sizeof(path), "%s/", getenv("FAKE_MUNGE_FOLDER"));
  for (size_t i = 0; i < sizeof(head->nonce); ++i) {
    at += snprintf(path + at, sizeof(path) - (size_t)at, "%02x", head->nonce[i]);
  }
  const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd >= 0) close(fd);
  return fd >= 0;
}

int munge_decode(const char* credential, struct munge_ctx* ctx, void** payload, int* bytes,
                 uid_t* uid, gid_t* gid) {
  unsigned char key[KEY_BYTES];
  unsigned char whole[sizeof(struct head) + MOST_PAYLOAD + MAC_BYTES];
  unsigned char mac[MAC_BYTES];
  struct head head;
  (void)ctx;
  if (read_key(key) != 0) return SOCKET;
  const size_t digits = strlen(credential);
  if (digits < 6 || strncmp(credential, "MUNGE:", 6) != 0) return INVALID;
  const size_t count = (digits - 6) / 2;
  if (count < sizeof(head) + MAC_BYTES || count > sizeof(whole)) return INVALID;
  for (size_t i = 0; i < count; ++i) {
    unsigned byte = 0;
    if (sscanf(credential + 6 + 2 * i, "%2x", &byte) != 1) return INVALID;
    whole[i] = (unsigned char)byte;
  }
  memcpy(&head, whole, sizeof(head));
  const size_t said = count - MAC_BYTES;
  HMAC(EVP_sha256(), key, KEY_BYTES, whole, said, mac, NULL);
  if (CRYPTO_memcmp(mac, whole + said, MAC_BYTES) != 0) return INVALID;
  if (head.bytes < 0 || (size_t)head.bytes != said - sizeof(head)) return INVALID;
  if (head.reader != geteuid()) return UNAUTHORIZED;
  if (!is_new(&head)) return REPLAYED;
  *payload = malloc((size_t)head.bytes + 1);
  memcpy(*payload, whole + sizeof(head), (size_t)head.bytes);
  cover(key, &head, *payload);
  *bytes = head.bytes;
  *uid = head.writer;
  *gid = getegid();
  return SUCCESS;
}
