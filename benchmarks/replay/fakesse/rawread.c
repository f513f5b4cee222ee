// rawread: opens CONNECTIONS, sends the same streaming request on each ROUNDS times and discards what comes
// back: the most that any client of fakesse could read. Usage: rawread PORT CONNECTIONS TOKENS ROUNDS
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

int main(int ac, char **av) {
  if (ac != 5) {
    fprintf(stderr, "usage: rawread PORT CONNECTIONS TOKENS ROUNDS\n");
    return 2;
  }
  int port = atoi(av[1]), C = atoi(av[2]), tok = atoi(av[3]), R = atoi(av[4]);
  char body[200], req[400];
  int bl = sprintf(body, "{\"model\":\"fake\",\"stream\":true,\"max_tokens\":%d,\"messages\":[]}", tok);
  int rl =
      sprintf(req, "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%s", bl, body);
  int ep = epoll_create1(0);
  for (int i = 0; i < C; i++) {
    int s = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(0x7f000001)};
    if (connect(s, (void *)&a, sizeof a)) {
      perror("c");
      return 1;
    }
    struct epoll_event e = {.events = EPOLLIN, .data.fd = s};
    epoll_ctl(ep, EPOLL_CTL_ADD, s, &e);
    if (write(s, req, rl) < 0)
      return 1;
  }
  static char buf[1 << 18];
  int done = 0;
  long bytes = 0;
  int *rounds = calloc(65536, 4);
  static struct epoll_event ev[1024];
  while (done < C) {
    int n = epoll_wait(ep, ev, 1024, -1);
    for (int i = 0; i < n; i++) {
      int s = ev[i].data.fd;
      ssize_t r = read(s, buf + 5, sizeof buf - 5);
      if (r <= 0) {
        done++;
        close(s);
        continue;
      }
      bytes += r;
      if (r >= 5 && !memcmp(buf + 5 + r - 5, "0\r\n\r\n", 5)) {
        if (++rounds[s] >= R) {
          done++;
          close(s);
        } else if (write(s, req, rl) < 0)
          return 1;
      }
    }
  }
  printf("bytes %ld\n", bytes);
}
