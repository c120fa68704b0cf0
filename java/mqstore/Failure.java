package mqstore;

import java.lang.reflect.InvocationTargetException;

/** The end of a failed attempt. */
final class Failure extends Exception {
    private static final int SYSTEM_ERROR = 1;
    private static final int SYSTEM_BUSY = 2;
    private static final int ILLEGAL_MESSAGE = 13;
    private static final int FLOW_CONTROL = 215;
    static final int NO_PERMISSION = 16;
    static final int NO_TOPIC = 17;
    static final int NO_QUEUE = -2;
    static final int DEAD_LETTER = -3;

    final int code;
    final String kind;

    Failure(int code, String kind, String text) {
        super(text);
        this.code = code;
        this.kind = kind;
    }

    static Failure of(Throwable thrown) {
        Throwable error = thrown;
        while (error instanceof InvocationTargetException && error.getCause() != null) {
            error = error.getCause();
        }
        int code = -1;
        try {
            code = (Integer) error.getClass().getMethod("getResponseCode").invoke(error);
        } catch (ReflectiveOperationException none) {
            // Not an answer: the connection failed, or time ran out.
        }
        String kind = error.getClass().getSimpleName();
        String text = String.valueOf(error.getMessage());
        // The client wraps some of its own exceptions, in text too.
        if (text.contains("remoting.exception.Remoting") || text.startsWith("The broker[")) {
            kind = "RemotingException";
        }
        for (Throwable cause = error.getCause(); cause != null; cause = cause.getCause()) {
            if (cause.getClass().getSimpleName().startsWith("Remoting")) {
                kind = cause.getClass().getSimpleName();
            }
        }
        return new Failure(code, kind, text);
    }

    boolean mayPass() {
        // Also what a broker says while it makes a file, waits for a slave, or is short of time.
        boolean isError = code == SYSTEM_ERROR
            && !getMessage().matches("(?s).*(AclException|Authenticat|Authoriz|accessKey|signature).*");
        return isError || code == SYSTEM_BUSY || code == FLOW_CONTROL || kind.startsWith("Remoting");
    }

    /** Whether other messages of the queue would be taken. */
    boolean isOfOne() {
        return code == ILLEGAL_MESSAGE || code == -1 && getMessage().contains("length is zero");
    }
}
