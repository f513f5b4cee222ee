/* A stand-in for libcuda.so.1 where there is no GPU: device memory is shared files, copies are memcpy.
   FAKE_CUDA_DIR: where those files go; FAKE_CUDA_COUNT: devices; FAKE_CUDA_FAULT: flip | ecc | hang | crash. */
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

typedef int R;
typedef uint64_t P;
typedef struct { char name[64]; } Handle;
static struct { P at; size_t size; char name[64]; } table[256];
static int used, current;

static int fault(const char *what) {
  const char *set = getenv("FAKE_CUDA_FAULT"), *only = getenv("FAKE_CUDA_FAULT_DEVICE"), *seen = getenv("CUDA_VISIBLE_DEVICES");
  if (!set || strcmp(set, what)) return 0;
  return !only || (seen && !strcmp(only, seen));
}
static int count(void) {
  const char *seen = getenv("CUDA_VISIBLE_DEVICES"), *all = getenv("FAKE_CUDA_COUNT");
  if (!seen) return all ? atoi(all) : 1;
  int n = *seen != 0;
  for (; *seen; seen++) n += *seen == ',';
  return n;
}
static int physical(int device) {
  const char *seen = getenv("CUDA_VISIBLE_DEVICES");
  if (!seen) return device;
  while (device-- > 0) seen = strchr(seen, ',') + 1;
  return atoi(seen);
}
R cuInit(unsigned flags) { return 0; }
R cuDriverGetVersion(int *v) { *v = 13000; return 0; }
R cuDeviceGetCount(int *n) { *n = count(); return 0; }
R cuDeviceGet(int *d, int n) { *d = n; return n < count() ? 0 : 101; }
R cuDeviceGetName(char *s, int n, int d) { snprintf(s, n, "NVIDIA H200"); return 0; }
R cuDeviceGetPCIBusId(char *s, int n, int d) { snprintf(s, n, "0000:%02X:00.0", 0x1a + physical(d)); return 0; }
R cuDeviceGetUuid_v2(char *u, int d) { memset(u, 0xa0 + physical(d), 16); return 0; }
R cuDeviceTotalMem_v2(size_t *n, int d) { *n = 1u << 31; return 0; }
R cuDevicePrimaryCtxRetain(void **c, int d) { *c = (void *)(intptr_t)(d + 1); return 0; }
R cuCtxSetCurrent(void *c) { current = (int)(intptr_t)c - 1; return 0; }
R cuCtxSynchronize(void) {
  if (fault("hang")) for (;;) pause();
  if (fault("crash")) raise(SIGSEGV);
  return fault("ecc") ? 214 : 0;
}
R cuMemGetInfo_v2(size_t *f, size_t *t) { *f = *t = 1u << 30; return 0; }
static P map(const char *name, size_t size, int make) {
  char path[512];
  snprintf(path, sizeof path, "%s/%s", getenv("FAKE_CUDA_DIR"), name);
  int fd = open(path, make ? O_RDWR | O_CREAT : O_RDWR, 0600);
  if (fd < 0) return 0;
  struct stat s;
  if (make && ftruncate(fd, size)) return 0;
  fstat(fd, &s);
  void *at = mmap(0, s.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  return at == MAP_FAILED ? 0 : (P)at;
}
R cuMemAlloc_v2(P *p, size_t size) {
  snprintf(table[used].name, 64, "m-%d-%d", (int)getpid(), used);
  *p = map(table[used].name, size, 1);
  if (!*p) return 2;
  table[used].at = *p;
  table[used++].size = size;
  return 0;
}
R cuMemFree_v2(P p) { return 0; }
R cuMemAllocHost_v2(void **p, size_t n) { *p = malloc(n); return *p ? 0 : 2; }
R cuMemFreeHost(void *p) { free(p); return 0; }
R cuMemHostRegister_v2(void *p, size_t n, unsigned f) { return (uintptr_t)p % 4096 ? 1 : 0; }
R cuMemHostUnregister(void *p) { return 0; }
static R copy(void *to, const void *from, size_t n) {
  memcpy(to, from, n);
  return 0;
}
R cuMemcpyHtoD_v2(P d, void *h, size_t n) { return copy((void *)d, h, n); }
R cuMemcpyDtoH_v2(void *h, P d, size_t n) { return copy(h, (void *)d, n); }
R cuMemcpyHtoDAsync_v2(P d, void *h, size_t n, void *s) { return copy((void *)d, h, n); }
R cuMemcpyDtoHAsync_v2(void *h, P d, size_t n, void *s) { return copy(h, (void *)d, n); }
R cuMemcpyDtoDAsync_v2(P d, P from, size_t n, void *s) {
  copy((void *)d, (void *)from, n);
  if (fault("flip")) ((char *)d)[n - 1] += 1;
  return 0;
}
R cuMemcpyPeerAsync(P d, void *dc, P from, void *fc, size_t n, void *s) { return copy((void *)d, (void *)from, n); }
R cuDeviceCanAccessPeer(int *can, int a, int b) { *can = 1; return 0; }
R cuCtxEnablePeerAccess(void *c, unsigned f) { return 704; }
R cuIpcGetMemHandle(Handle *h, P p) {
  for (int i = 0; i < used; i++)
    if (table[i].at == p) { memcpy(h->name, table[i].name, 64); return 0; }
  return 1;
}
R cuIpcOpenMemHandle_v2(P *p, Handle h, unsigned f) { *p = map(h.name, 0, 0); return *p ? 0 : 201; }
R cuIpcCloseMemHandle(P p) { return 0; }
R cuGetErrorName(int e, const char **s) {
  *s = e == 214 ? "CUDA_ERROR_ECC_UNCORRECTABLE" : "CUDA_ERROR_OTHER";
  return 0;
}
