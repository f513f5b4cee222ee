// fakesse: a fake OpenAI chat server that streams on a fixed schedule and logs when it really emitted.
//
// One epoll thread and a heap of due times. Content event k of a request is due at receipt + TTFT + k * ITL,
// so that lateness never adds up. A moment of emission is taken before the event is formatted and written: a
// client's error against it includes the cost of that write.
//
// GET  /health, /v1/models; /__reset forgets all records; /__stats is a JSON summary; /__dump writes the log
// POST anything            a chat completion: streamed when the body asks for it
//
// Build: make. The log (--log FILE) has one CSV line a request; with --keep-times 1 its last column holds the
// moment of each content event in ns after the request was received, separated by spaces.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "truth.h"

static i64 now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}
static i64 wall(void) {
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}
static int port = 8000, def_tokens = 128, honor = 1, role_early = 0, reasoning = 0, tpc = 1, split_us = 0,
           no_usage = 0, comments = 0, crlf = 0, batch = 1, usage_all = 0, keep_times = 0, cpu = -1;
static double ttft_ms = 100, itl_ms = 20;
static i64 stagger_us = 0;
typedef struct {
  int fd;
  char *in;
  size_t inl, incap;
  char *out;
  size_t outl, outcap;
  int state; // 0 idle/read 1 streaming
  int ntok, sent;
  i64 due, t_start, t_ttft;
  Rec r;
  int want_usage;
  int epout;
  int heapi;
  i64 itl;
  int half;
  int head_sent;
  int want_close;
  unsigned seq;
} C;
static int ep;
static C **heap;
static int hn, hcap;
static unsigned seqno;
static void hswap(int a, int b) {
  C *t = heap[a];
  heap[a] = heap[b];
  heap[b] = t;
  heap[a]->heapi = a;
  heap[b]->heapi = b;
}
static int hless(int a, int b) {
  return heap[a]->due != heap[b]->due ? heap[a]->due < heap[b]->due : heap[a]->seq < heap[b]->seq;
}
static void hup(int i) {
  while (i && hless(i, (i - 1) / 2)) {
    hswap(i, (i - 1) / 2);
    i = (i - 1) / 2;
  }
}
static void hdown(int i) {
  for (;;) {
    int l = 2 * i + 1, m = i;
    if (l < hn && hless(l, m))
      m = l;
    if (l + 1 < hn && hless(l + 1, m))
      m = l + 1;
    if (m == i)
      break;
    hswap(i, m);
    i = m;
  }
}
static void hpush(C *c) {
  if (hn == hcap) {
    hcap = hcap ? hcap * 2 : 1024;
    heap = realloc(heap, hcap * sizeof *heap);
  }
  heap[hn] = c;
  c->heapi = hn;
  hup(hn++);
}
static void hrem(C *c) {
  int i = c->heapi;
  if (i < 0)
    return;
  hn--;
  if (i != hn) {
    hswap(i, hn);
    hup(i);
    hdown(i);
  }
  c->heapi = -1;
}
static void setout(C *c, int on) {
  if (c->epout == on)
    return;
  c->epout = on;
  struct epoll_event e = {.events = EPOLLIN | (on ? EPOLLOUT : 0), .data.ptr = c};
  epoll_ctl(ep, EPOLL_CTL_MOD, c->fd, &e);
}
static void cclose(C *c) {
  if (c->state == 1) {
    c->r.aborted = 1;
    c->r.n = c->sent;
    addrec(&c->r);
  }
  hrem(c);
  close(c->fd);
  free(c->in);
  free(c->out);
  free(c);
  nconn--;
}
static int flushc(C *c) {
  while (c->outl) {
    ssize_t w = write(c->fd, c->out, c->outl);
    if (w < 0) {
      if (errno == EAGAIN) {
        setout(c, 1);
        return 0;
      }
      return -1;
    }
    if ((size_t)w < c->outl)
      memmove(c->out, c->out + w, c->outl - w);
    c->outl -= w;
  }
  setout(c, 0);
  return 1;
}
static void outadd(C *c, const char *d, size_t n) {
  if (c->outl + n > c->outcap) {
    c->outcap = (c->outl + n) * 2;
    c->out = realloc(c->out, c->outcap);
  }
  memcpy(c->out + c->outl, d, n);
  c->outl += n;
}
static void outchunk(C *c, const char *d, int n) {
  char h[16];
  int k = sprintf(h, "%x\r\n", n);
  outadd(c, h, k);
  outadd(c, d, n);
  outadd(c, "\r\n", 2);
}
static void head(C *c) {
  const char *h = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: "
                  "chunked\r\n\r\n";
  outadd(c, h, strlen(h));
  c->head_sent = 1;
}
#define NL (crlf ? "\r\n\r\n" : "\n\n")
static int evt(char *b, C *c, const char *delta, const char *fin, int ctok) {
  char u[128] = "";
  if (usage_all && c->want_usage)
    sprintf(u, ",\"usage\":{\"prompt_tokens\":%d,\"completion_tokens\":%d,\"total_tokens\":%d}",
            c->r.body / 4, ctok, c->r.body / 4 + ctok);
  return sprintf(
      b,
      "data: "
      "{\"id\":\"chatcmpl-%08x\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,\"model\":"
      "\"fake\",\"choices\":[{\"index\":0,\"delta\":%s,\"logprobs\":null,\"finish_reason\":%s}]%s}%s",
      c->seq, delta, fin, u, NL);
}
static int endreq(C *c) {
  char b[600], h[700];
  int n = 0;
  n = evt(b, c, "{}", "\"stop\"", c->ntok);
  outchunk(c, b, n);
  if (c->want_usage && !no_usage) {
    n = sprintf(b,
                "data: "
                "{\"id\":\"chatcmpl-%08x\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,"
                "\"model\":\"fake\",\"choices\":[],\"usage\":{\"prompt_tokens\":%d,\"completion_tokens\":%d,"
                "\"total_tokens\":%d}}%s",
                c->seq, c->r.body / 4, c->ntok, c->r.body / 4 + c->ntok, NL);
    outchunk(c, b, n);
  }
  n = sprintf(h, "data: [DONE]%s", NL);
  outchunk(c, h, n);
  outadd(c, "0\r\n\r\n", 5);
  c->r.n = c->ntok;
  addrec(&c->r);
  c->state = 0;
  return 0;
}
// emit next chunk(s); returns -1 on error
static int emit(C *c) {
  i64 t = now();
  char b[2048];
  int did = 0;
  if (!c->head_sent) {
    head(c);
  }
  if (role_early && !c->half && c->sent == 0) {
    int n = evt(b, c, "{\"role\":\"assistant\",\"content\":\"\"}", "null", 0);
    outchunk(c, b, n);
    c->half = 1;
    c->due = c->t_ttft;
    if (flushc(c) < 0)
      return -1;
    hpush(c);
    return 0;
  }
  if (c->outl) {
    if (flushc(c) < 0)
      return -1;
    if (c->outl)
      return 1;
  }
  while (did < batch && c->sent < c->ntok) {
    if (c->sent == 0) {
      c->r.t_first = t;
      if (!role_early) {
        int n = evt(b, c, "{\"role\":\"assistant\",\"content\":\"\"}", "null", 0);
        outchunk(c, b, n);
      }
    } else
      addg(&gaps, &ngaps, &capgaps, t - c->r.t_last);
    if (c->itl > 0 || c->sent == 0) {
      i64 l = t - c->due;
      addg(&late, &nlate, &caplate, l);
      if (l > c->r.maxlate)
        c->r.maxlate = l;
    }
    int k = tpc;
    if (c->sent + k > c->ntok)
      k = c->ntok - c->sent;
    char d[1200];
    int p = 0;
    int rs = c->sent < reasoning;
    p += sprintf(d + p, rs ? "{\"reasoning_content\":\"" : "{\"content\":\"");
    for (int i = 0; i < k; i++)
      p += sprintf(d + p, " the");
    p += sprintf(d + p, "\"}");
    c->sent += k;
    int n = evt(b, c, d, "null", c->sent);
    if (comments) {
      outchunk(c, ": ping\n\n", 8);
    }
    if (split_us > 0 && n > 20) {
      char h[16];
      int q = sprintf(h, "%x\r\n", n);
      outadd(c, h, q);
      outadd(c, b, n / 2);
      if (flushc(c) < 0)
        return -1;
      i64 w = now() + split_us * 1000LL;
      while (now() < w)
        ;
      outadd(c, b + n / 2, n - n / 2);
      outadd(c, "\r\n", 2);
      t = now();
      if (c->r.chunks == 0)
        c->r.t_first = t;
    } else
      outchunk(c, b, n);
    c->r.t_last = t;
    if (keep_times)
      addat(&c->r, t - c->r.t_full);
    c->r.chunks++;
    chunks_total++;
    t_lastemit = t;
    did++;
  }
  if (c->sent >= c->ntok)
    endreq(c);
  int f = flushc(c);
  if (f < 0)
    return -1;
  if (c->state == 1) {
    c->due = c->itl > 0 ? c->t_ttft + (i64)c->r.chunks * c->itl : t;
    if (f == 1 || c->itl > 0)
      hpush(c);
  }
  return 0;
}
static i64 jint(const char *b, size_t n, const char *k) {
  char *p = memmem(b, n, k, strlen(k));
  if (!p)
    return -1;
  p += strlen(k);
  while (*p == ' ' || *p == ':')
    p++;
  if (*p < '0' || *p > '9')
    return -1;
  return atoll(p);
}
static void hdr(const char *h, size_t n, const char *name, char *o, int on) {
  const char *e = h + n;
  size_t l = strlen(name);
  for (const char *p = h; p < e - l;) {
    if (!strncasecmp(p, name, l) && p[l] == ':') {
      p += l + 1;
      while (*p == ' ')
        p++;
      int i = 0;
      while (p < e && *p != '\r' && i < on - 1)
        o[i++] = *p++;
      o[i] = 0;
      return;
    }
    p = memchr(p, '\n', e - p);
    if (!p)
      return;
    p++;
  }
}
static void simple(C *c, const char *ct, const char *body) {
  char h[256];
  int n = sprintf(h, "HTTP/1.1 200 OK\r\ncontent-type: %s\r\ncontent-length: %zu\r\n\r\n", ct, strlen(body));
  outadd(c, h, n);
  outadd(c, body, strlen(body));
}
// returns 1 if a request was consumed
static int parse(C *c) {
  if (c->state == 1 || !c->inl)
    return 0;
  char *e = memmem(c->in, c->inl, "\r\n\r\n", 4);
  if (!e)
    return 0;
  size_t hl = e - c->in + 4;
  char v[40] = "";
  hdr(c->in, hl, "content-length", v, 40);
  size_t cl = v[0] ? strtoull(v, 0, 10) : 0;
  if (c->inl < hl + cl)
    return 0;
  char *body = c->in + hl;
  if (!strncmp(c->in, "GET", 3)) {
    char *p = c->in + 4;
    if (!strncmp(p, "/__reset", 8)) {
      for (int i = 0; i < nrec; i++)
        free(recs[i].at);
      nrec = 0;
      ngaps = nlate = 0;
      chunks_total = reqs_total = 0;
      t_firstreq = t_lastemit = 0;
      peakconn = nconn;
      simple(c, "text/plain", "ok\n");
    } else if (!strncmp(p, "/__stats", 8)) {
      char b[1600];
      stats(b);
      simple(c, "application/json", b);
    } else if (!strncmp(p, "/__dump", 7)) {
      dump();
      simple(c, "text/plain", "ok\n");
    } else if (!strncmp(p, "/v1/models", 10))
      simple(c, "application/json",
             "{\"object\":\"list\",\"data\":[{\"id\":\"fake\",\"object\":\"model\",\"created\":1,\"owned_"
             "by\":\"x\",\"max_model_len\":1000000}]}");
    else if (!strncmp(p, "/health", 7))
      simple(c, "text/plain", "ok");
    else {
      const char *h = "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n";
      outadd(c, h, strlen(h));
    }
  } else {
    memset(&c->r, 0, sizeof c->r);
    c->r.t_fb = c->t_start;
    c->r.t_full = now();
    c->r.w_full = wall();
    c->r.body = cl;
    c->seq = ++seqno;
    reqs_total++;
    if (!t_firstreq)
      t_firstreq = c->r.t_full;
    hdr(c->in, hl, "x-request-id", c->r.rid, sizeof c->r.rid);
    hdr(c->in, hl, "x-session-id", c->r.sid, sizeof c->r.sid);
    c->ntok = def_tokens;
    char sv = body[cl];
    body[cl] = 0;
    i64 m = -1;
    if (honor) {
      m = jint(body, cl, "\"max_completion_tokens\"");
      if (m < 0)
        m = jint(body, cl, "\"max_tokens\"");
      if (m > 0)
        c->ntok = m;
    }
    c->want_usage = memmem(body, cl, "include_usage", 13) != 0;
    int st = memmem(body, cl, "\"stream\":true", 13) || memmem(body, cl, "\"stream\": true", 14);
    body[cl] = sv;
    if (!st) {
      char b[400];
      sprintf(b,
              "{\"id\":\"x\",\"object\":\"chat.completion\",\"created\":1,\"model\":\"fake\",\"choices\":[{"
              "\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\" "
              "the\"},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":%zu,\"completion_tokens\":1,"
              "\"total_tokens\":%zu}}",
              cl / 4, cl / 4 + 1);
      simple(c, "application/json", b);
    } else {
      c->state = 1;
      c->sent = 0;
      c->half = 0;
      c->head_sent = 0;
      c->itl = (i64)(itl_ms * 1e6);
      c->t_ttft =
          c->r.t_full + (i64)(ttft_ms * 1e6) + (stagger_us ? (c->seq * 2654435761u % 1000) * stagger_us : 0);
      c->due = role_early ? c->r.t_full : c->t_ttft;
      hpush(c);
    }
  }
  memmove(c->in, c->in + hl + cl, c->inl - hl - cl);
  c->inl -= hl + cl;
  return 1;
}
static volatile int stop;
static void onsig(int s) {
  stop = 1;
}
int main(int ac, char **av) {
  for (int i = 1; i < ac; i++) {
    char *k = av[i];
    char *v = i + 1 < ac ? av[i + 1] : "0";
#define OPTION(n, x)                                                                                         \
  if (!strcmp(k, n)) {                                                                                       \
    x;                                                                                                       \
    i++;                                                                                                     \
    continue;                                                                                                \
  }
    // clang-format off
    OPTION("--port", port = atoi(v))
    OPTION("--tokens", def_tokens = atoi(v))
    OPTION("--ttft-ms", ttft_ms = atof(v))
    OPTION("--itl-ms", itl_ms = atof(v))
    OPTION("--honor-max-tokens", honor = atoi(v))
    OPTION("--role-early", role_early = atoi(v))
    OPTION("--reasoning", reasoning = atoi(v))
    OPTION("--tok-per-chunk", tpc = atoi(v))
    OPTION("--split-us", split_us = atoi(v))
    OPTION("--no-usage", no_usage = atoi(v))
    OPTION("--comments", comments = atoi(v))
    OPTION("--crlf", crlf = atoi(v))
    OPTION("--batch", batch = atoi(v))
    OPTION("--usage-all", usage_all = atoi(v))
    OPTION("--stagger-us", stagger_us = atoll(v))
    OPTION("--cpu", cpu = atoi(v))
    OPTION("--log", logp = v)
    OPTION("--keep-times", keep_times = atoi(v))
    // clang-format on
    fprintf(stderr, "unknown option %s\n", k);
    return 2;
  }
  if (tpc > 200)
    tpc = 200;
  if (cpu >= 0) {
    cpu_set_t s;
    CPU_ZERO(&s);
    CPU_SET(cpu, &s);
    sched_setaffinity(0, sizeof s, &s);
  }
  prctl(PR_SET_TIMERSLACK, 1UL);
  signal(SIGPIPE, SIG_IGN);
  signal(SIGTERM, onsig);
  signal(SIGINT, onsig);
  struct rlimit rl = {1 << 17, 1 << 17};
  setrlimit(RLIMIT_NOFILE, &rl);
  int ls = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), one = 1;
  setsockopt(ls, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  struct sockaddr_in a = {
      .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  if (bind(ls, (void *)&a, sizeof a) || listen(ls, 4096)) {
    perror("bind");
    return 1;
  }
  ep = epoll_create1(0);
  struct epoll_event e = {.events = EPOLLIN, .data.ptr = 0};
  epoll_ctl(ep, EPOLL_CTL_ADD, ls, &e);
  static struct epoll_event ev[2048];
  while (!stop) {
    i64 t = now();
    struct timespec ts, *tp = 0;
    if (hn) {
      i64 d = heap[0]->due - t;
      if (d < 40000)
        d = 0;
      else
        d -= 20000;
      ts.tv_sec = d / 1000000000;
      ts.tv_nsec = d % 1000000000;
      tp = &ts;
    }
    int n = epoll_pwait2(ep, ev, 2048, tp, 0);
    if (n < 0 && errno != EINTR) {
      perror("epoll");
      return 1;
    }
    for (int i = 0; i < n; i++) {
      C *c = ev[i].data.ptr;
      if (!c) {
        for (;;) {
          int fd = accept4(ls, 0, 0, SOCK_NONBLOCK | SOCK_CLOEXEC);
          if (fd < 0)
            break;
          setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
          C *x = calloc(1, sizeof *x);
          x->fd = fd;
          x->heapi = -1;
          x->r.t_conn = now();
          struct epoll_event q = {.events = EPOLLIN, .data.ptr = x};
          epoll_ctl(ep, EPOLL_CTL_ADD, fd, &q);
          if (++nconn > peakconn)
            peakconn = nconn;
        }
        continue;
      }
      int dead = 0;
      if (ev[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
        for (;;) {
          if (c->incap - c->inl < 65536) {
            c->incap = c->incap ? c->incap * 2 : 131072;
            c->in = realloc(c->in, c->incap + 1);
          }
          if (!c->inl)
            c->t_start = now();
          ssize_t r = read(c->fd, c->in + c->inl, c->incap - c->inl);
          if (r > 0) {
            c->inl += r;
            continue;
          }
          if (r == 0 || errno != EAGAIN)
            dead = 1;
          break;
        }
      }
      if (dead) {
        cclose(c);
        continue;
      }
      if (ev[i].events & EPOLLOUT) {
        int f = flushc(c);
        if (f < 0) {
          cclose(c);
          continue;
        }
        if (f == 1 && c->state == 1 && c->heapi < 0) {
          c->due = now();
          hpush(c);
        }
      }
      while (parse(c))
        ;
      if (c->outl && flushc(c) < 0) {
        cclose(c);
        continue;
      }
    }
    t = now();
    int budget = hn;
    while (hn && heap[0]->due <= t && budget-- > 0) {
      C *c = heap[0];
      hrem(c);
      int r = emit(c);
      if (r < 0) {
        cclose(c);
        continue;
      }
      if (c->state == 0)
        while (parse(c))
          ;
      if (c->outl && flushc(c) < 0)
        cclose(c);
    }
  }
  dump();
  return 0;
}
