/* A stand-in for pyxis on the test cluster: the same option names on srun, and the task really runs inside a squashfs
 * image (read-only image + tmpfs overlay, bind mounts, chroot). It shares the host's users and knows no registry: an
 * image is an absolute path. Needs root on the nodes, and libslurm-dev to build:
 *
 *   gcc -Wall -shared -fPIC -o container_spank.so container_spank.c
 *   plugstack.conf:  required /path/container_spank.so
 */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <slurm/spank.h>

SPANK_PLUGIN(localcontainer, 1);

static char *image, *mounts, *workdir;

static int take_image(int v, const char *a, int remote) { (void)v; (void)remote; image = strdup(a); return 0; }
static int take_mounts(int v, const char *a, int remote) { (void)v; (void)remote; mounts = strdup(a); return 0; }
static int take_workdir(int v, const char *a, int remote) { (void)v; (void)remote; workdir = strdup(a); return 0; }
static int accept_only(int v, const char *a, int remote) { (void)v; (void)a; (void)remote; return 0; }

static struct spank_option options[] = {
    {"container-image", "PATH", "[local] squashfs image", 1, 0, take_image},
    {"container-mounts", "SRC:DST[:ro],...", "[local] bind mounts", 1, 0, take_mounts},
    {"container-workdir", "PATH", "[local] working directory", 1, 0, take_workdir},
    {"container-name", "NAME", "[local] accepted", 1, 0, accept_only},
    {"container-env", "NAME,...", "[local] accepted: the environment is the step's anyway", 1, 0, accept_only},
    {"container-writable", NULL, "[local] accepted: the overlay is writable", 0, 0, accept_only},
    {"container-remap-root", NULL, "[local] accepted", 0, 0, accept_only},
    {"container-mount-home", NULL, "[local] accepted", 0, 0, accept_only},
    {"no-container-mount-home", NULL, "[local] accepted", 0, 0, accept_only},
    {"no-container-entrypoint", NULL, "[local] accepted", 0, 0, accept_only},
    SPANK_OPTIONS_TABLE_END};

int slurm_spank_init(spank_t spank, int argc, char **argv) {
  (void)argc;
  (void)argv;
  for (int i = 0; options[i].name; i++)
    if (spank_option_register(spank, &options[i]) != ESPANK_SUCCESS) return -1;
  return 0;
}

#define FAIL(...)                          \
  do {                                     \
    slurm_error("container: " __VA_ARGS__); \
    return -1;                             \
  } while (0)

/* Run a program and give its exit code; 128 when a signal ended it. */
static int run(char *const argv[]) {
  int status;
  pid_t child = fork();
  if (child < 0) return 128;
  if (child == 0) {
    execvp(argv[0], argv);
    _exit(127);
  }
  if (waitpid(child, &status, 0) < 0) return 128;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

/* mkdir -p */
static void make_folders(const char *path) {
  char part[4096];
  snprintf(part, sizeof part, "%s", path);
  for (char *p = part + 1; *p; p++)
    if (*p == '/') {
      *p = 0;
      mkdir(part, 0755);
      *p = '/';
    }
  mkdir(part, 0755);
}

/* Bind `source` to `target` below `root`, making the mount point. */
static int bind_mount(const char *root, const char *source, const char *target, int read_only) {
  char place[4096];
  struct stat st;
  snprintf(place, sizeof place, "%s%s", root, target);
  if (stat(source, &st)) FAIL("--container-mounts: source path does not exist: %s", source);
  if (S_ISDIR(st.st_mode)) {
    make_folders(place);
  } else {
    char *slash = strrchr(place, '/');
    *slash = 0;
    make_folders(place);
    *slash = '/';
    FILE *file = fopen(place, "a");
    if (file) fclose(file);
  }
  if (mount(source, place, NULL, MS_BIND | MS_REC, NULL)) FAIL("mount %s on %s: %s", source, place, strerror(errno));
  if (read_only && mount(NULL, place, NULL, MS_BIND | MS_REMOUNT | MS_RDONLY, NULL))
    FAIL("mount %s read-only: %s", place, strerror(errno));
  return 0;
}

/* The root of the container: image below, tmpfs above, in a mount namespace of the task's own. */
static int make_root(const char *img, const char *base) {
  char low[64], up[64], work[64], root[64], opts[512];
  if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL)) FAIL("unshare: %s", strerror(errno));
  mkdir(base, 0755);
  if (mount("tmpfs", base, "tmpfs", 0, "size=1g")) FAIL("tmpfs: %s", strerror(errno));
  snprintf(low, sizeof low, "%s/low", base);
  snprintf(up, sizeof up, "%s/up", base);
  snprintf(work, sizeof work, "%s/work", base);
  snprintf(root, sizeof root, "%s/root", base);
  mkdir(low, 0755);
  mkdir(up, 0755);
  mkdir(work, 0755);
  mkdir(root, 0755);
  char *const loop[] = {"mount", "-t", "squashfs", "-o", "loop,ro", (char *)img, low, NULL};
  if (run(loop)) FAIL("cannot mount image %s", img);
  snprintf(opts, sizeof opts, "lowerdir=%s,upperdir=%s,workdir=%s", low, up, work);
  if (mount("overlay", root, "overlay", 0, opts)) FAIL("overlay: %s", strerror(errno));
  return 0;
}

int slurm_spank_task_init_privileged(spank_t spank, int argc, char **argv) {
  static const char *const shared[] = {"/proc", "/dev", "/sys", "/etc/hosts", "/etc/resolv.conf", NULL};
  const char *base = "/run/local-container";
  char root[64];
  (void)argc;
  (void)argv;
  if (!image || !spank_remote(spank)) return 0;
  if (access(image, R_OK)) FAIL("No such file or directory: %s", image);
  if (make_root(image, base)) return -1;
  snprintf(root, sizeof root, "%s/root", base);
  for (int i = 0; shared[i]; i++)
    if (!access(shared[i], F_OK) && bind_mount(root, shared[i], shared[i], 0)) return -1;
  for (char *rest = mounts, *one; rest && (one = strsep(&rest, ",")) && *one;) {
    char *source = strsep(&one, ":"), *target = strsep(&one, ":");
    if (bind_mount(root, source, target ? target : source, one && strstr(one, "ro"))) return -1;
  }
  if (chroot(root) || chdir(workdir ? workdir : "/")) FAIL("chroot: %s", strerror(errno));
  return 0;
}
