// What really happened: one record a request, every gap and every lateness, and how they are told.
#ifndef FAKESSE_TRUTH_H
#define FAKESSE_TRUTH_H
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

typedef int64_t i64;
static const char *logp = "./fakesse.csv";
static int nconn, peakconn;
static i64 chunks_total, reqs_total, t_firstreq, t_lastemit;

typedef struct {
  i64 t_conn, t_fb, t_full, t_first, t_last, w_full;
  int n, chunks;
  int body;
  i64 maxlate;
  int aborted;
  char rid[256], sid[256];
  i64 *at; // --keep-times: emission of each content event, ns after t_full
  int nat, capat;
} Rec;
static Rec *recs;
static int nrec, caprec;
static uint32_t *gaps;
static size_t ngaps, capgaps; // per-chunk gap, us*10
static uint32_t *late;
static size_t nlate, caplate;

static void addrec(Rec *r) {
  if (nrec == caprec) {
    caprec = caprec ? caprec * 2 : 4096;
    recs = realloc(recs, caprec * sizeof *recs);
  }
  recs[nrec++] = *r;
}
static void addg(uint32_t **a, size_t *n, size_t *c, i64 ns) {
  if (*n == *c) {
    *c = *c ? *c * 2 : 1 << 20;
    *a = realloc(*a, *c * 4);
  }
  (*a)[(*n)++] = ns < 0 ? 0 : (ns / 100 > 4000000000LL ? 4000000000U : (uint32_t)(ns / 100));
}
static void addat(Rec *r, i64 ns) {
  if (r->nat == r->capat) {
    r->capat = r->capat ? r->capat * 2 : 64;
    r->at = realloc(r->at, r->capat * sizeof *r->at);
  }
  r->at[r->nat++] = ns;
}

static int cmpu(const void *a, const void *b) {
  uint32_t x = *(uint32_t *)a, y = *(uint32_t *)b;
  return x < y ? -1 : x > y;
}
static int cmpd(const void *a, const void *b) {
  double x = *(double *)a, y = *(double *)b;
  return x < y ? -1 : x > y;
}
static double pu(uint32_t *a, size_t n, double q) {
  return n ? a[(size_t)(q * (n - 1))] / 1e4 : 0;
} // ms
static double pd(double *a, size_t n, double q) {
  return n ? a[(size_t)(q * (n - 1))] : 0;
}
// The summary as JSON, into `b` of 1600 bytes.
static void stats(char *b) {
  double *T = malloc(8 * (nrec + 1)), *I = malloc(8 * (nrec + 1));
  int nt = 0, ni = 0, ab = 0;
  for (int i = 0; i < nrec; i++) {
    Rec *r = recs + i;
    if (r->aborted) {
      ab++;
      continue;
    }
    if (r->chunks)
      T[nt++] = (r->t_first - r->t_full) / 1e6;
    if (r->chunks > 1)
      I[ni++] = (r->t_last - r->t_first) / 1e6 / (r->chunks - 1);
  }
  qsort(T, nt, 8, cmpd);
  qsort(I, ni, 8, cmpd);
  uint32_t *g = malloc(4 * (ngaps + 1)), *l = malloc(4 * (nlate + 1));
  memcpy(g, gaps, 4 * ngaps);
  memcpy(l, late, 4 * nlate);
  qsort(g, ngaps, 4, cmpu);
  qsort(l, nlate, 4, cmpu);
  struct rusage ru;
  getrusage(RUSAGE_SELF, &ru);
  double span = t_lastemit > t_firstreq ? (t_lastemit - t_firstreq) / 1e9 : 0;
  sprintf(b,
          "{\"reqs\":%lld,\"done\":%d,\"aborted\":%d,\"chunks\":%lld,\"span_s\":%.4f,\"chunks_per_s\":%.0f,"
          "\"ttft_p50\":%.3f,\"ttft_p99\":%.3f,\"itl_req_p50\":%.4f,\"itl_req_p99\":%.4f,\"gap_p50\":%.4f,"
          "\"gap_p99\":%.4f,\"late_p50\":%.4f,\"late_p99\":%.4f,\"late_max\":%.3f,\"nconn\":%d,\"peakconn\":%"
          "d,\"cpu_s\":%.3f,\"t_firstreq_mono\":%.6f,\"t_lastemit_mono\":%.6f}\n",
          (long long)reqs_total, nrec, ab, (long long)chunks_total, span, span > 0 ? chunks_total / span : 0,
          pd(T, nt, .5), pd(T, nt, .99), pd(I, ni, .5), pd(I, ni, .99), pu(g, ngaps, .5), pu(g, ngaps, .99),
          pu(l, nlate, .5), pu(l, nlate, .99), pu(l, nlate, 1), nconn, peakconn,
          ru.ru_utime.tv_sec + ru.ru_stime.tv_sec + (ru.ru_utime.tv_usec + ru.ru_stime.tv_usec) / 1e6,
          t_firstreq / 1e9, t_lastemit / 1e9);
  free(T);
  free(I);
  free(g);
  free(l);
}
static void dump(void) {
  FILE *f = fopen(logp, "w");
  if (!f)
    return;
  fprintf(f, "request_id,session,wall_recv_ns,mono_recv_ns,ttft_ms,itl_ms,chunks,tokens,body,"
             "first_byte_to_full_ms,maxlate_ms,aborted,emitted_ns\n");
  for (int i = 0; i < nrec; i++) {
    Rec *r = recs + i;
    fprintf(f, "%s,%s,%lld,%lld,%.4f,%.4f,%d,%d,%d,%.4f,%.4f,%d,", r->rid, r->sid, (long long)r->w_full,
            (long long)r->t_full, (r->t_first - r->t_full) / 1e6,
            r->chunks > 1 ? (r->t_last - r->t_first) / 1e6 / (r->chunks - 1) : 0, r->chunks, r->n, r->body,
            (r->t_full - r->t_fb) / 1e6, r->maxlate / 1e6, r->aborted);
    for (int k = 0; k < r->nat; k++)
      fprintf(f, k ? " %lld" : "%lld", (long long)r->at[k]);
    fputc('\n', f);
  }
  fclose(f);
}

#endif
