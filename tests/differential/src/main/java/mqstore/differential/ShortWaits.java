package mqstore.differential;

import java.util.concurrent.TimeUnit;

/**
 * Ends waits of a shutdown that serve nobody here, wherever one thread makes them: the three seconds that a store sleeps to let others
 * notice, and the up to three seconds in which each client and server looks for a last event of its connections.
 */
final class ShortWaits implements AutoCloseable {
    private static final int LOOK_MS = 20;

    private final Thread watched = Thread.currentThread();
    private final Thread watcher = new Thread(this::watch, "short-waits");
    private volatile boolean closed;
    private boolean hasSlept;

    ShortWaits() {
        watcher.setDaemon(true);
        watcher.start();
    }

    private void watch() {
        while (!closed) {
            try {
                TimeUnit.MILLISECONDS.sleep(LOOK_MS);
            } catch (InterruptedException e) {
                return;
            }
            StackTraceElement[] stack = watched.getStackTrace();
            if (!hasSlept && calls(stack, "java.lang.Thread", "sleep", "DefaultMessageStore")) {
                hasSlept = true;
                watched.interrupt();
            } else if (calls(stack, "java.lang.Thread", "join", "ServiceThread")) {
                Thread.getAllStackTraces().keySet().stream()
                    .filter(thread -> thread.getName().endsWith("NettyEventExecutor"))
                    .forEach(Thread::interrupt);
            }
        }
    }

    /** Whether {@code method} of a class is what the thread runs, called by {@code shutdown} of {@code caller}. */
    private static boolean calls(StackTraceElement[] stack, String type, String method, String caller) {
        int at = 0;
        while (at < stack.length && stack[at].getClassName().startsWith("java.lang.")
            && !(stack[at].getClassName().equals(type) && stack[at].getMethodName().equals(method))) {
            at++;
        }
        while (at < stack.length && stack[at].getClassName().equals(type)) {
            at++;
        }
        return at > 0 && at < stack.length && stack[at - 1].getMethodName().equals(method)
            && stack[at].getMethodName().equals("shutdown") && stack[at].getClassName().endsWith("." + caller);
    }

    @Override
    public void close() {
        closed = true;
        watcher.interrupt();
    }
}
